"""Reader of ONNX graphs: every linear, exact bytes and what attention says of heads, without tensor values."""
