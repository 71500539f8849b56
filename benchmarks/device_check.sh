#!/usr/bin/env bash
# Checks this machine's accelerator, or its processors where there is none, in at most five minutes.
#
#   benchmarks/device_check.sh [DEVICE] [FOLDER]
#
# Runs the conformance suite of the device's adapter, a quick bench, and a server with a small model of random weights.
# FOLDER (default: device-check) gets report.md, every document and log, and the versions of what ran. Exits with 1 when
# a step failed; what cannot run here is skipped, with the reason.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
PATH="$root/.venv/bin:$PATH"
device=${1:-}
folder=${2:-device-check}
mkdir -p "$folder" || exit 2
folder=$(cd "$folder" && pwd)
report="$folder/report.md"
failures=0
TOTAL=290
export HF_HUB_OFFLINE=1 XDG_STATE_HOME="$folder/state" NO_COLOR=1

say() { printf '%s\n' "$*" | tee -a "$report"; }

# step TITLE SECONDS OUTPUT COMMAND...: the row of one command, its output in OUTPUT and OUTPUT.log
step() {
  local title=$1 limit=$2 output=$3 code begin=$SECONDS last
  shift 3
  [ "$limit" -gt $((TOTAL - SECONDS)) ] && limit=$((TOTAL - SECONDS))
  if [ "$limit" -lt 5 ]; then
    skip "$title" "the five minutes were over"
    return 1
  fi
  timeout --kill-after=5 "$limit" "$@" >"$folder/$output" 2>"$folder/$output.log"
  code=$?
  if [ $code -eq 0 ]; then
    say "| $title | passed | $((SECONDS - begin)) s | \`$output\` |"
  else
    failures=$((failures + 1))
    last=$(grep -E '^(error|hint):' "$folder/$output.log" | head -1)
    [ $code -eq 124 ] && last="not over after $limit s"
    say "| $title | FAILED ($code) | $((SECONDS - begin)) s | ${last:-see \`$output\` and \`$output.log\`} |"
  fi
  return $code
}

skip() { say "| $1 | skipped | | $2 |"; }

# look PROGRAM ARGUMENTS...: what a vendor's tool says of itself
look() {
  if command -v "$1" >/dev/null; then
    printf '== %s\n%s\n' "$*" "$(timeout 20 "$@" 2>&1)" >>"$folder/versions.txt"
  else
    printf '== %s: not installed\n' "$1" >>"$folder/versions.txt"
  fi
}

command -v vllm-probe >/dev/null || { echo "vllm-probe is not on PATH: pip install -e '.[runtime]'" >&2; exit 3; }

: >"$report"
: >"$folder/versions.txt"
look uname -srm
look vllm-probe --version
look python --version
look python -c 'import torch; print("torch", torch.__version__)'
look nvidia-smi
look rocm-smi --showdriverversion --showproductname
look xpu-smi discovery
look npu-smi info
say "# Device check"
say ""
say "| step | result | time | where or why |"
say "|---|---|--:|---|"

step "detect" 40 detect.json vllm-probe detect --json
read -r id vendor kind < <(python "$root/tools/device_check.py" pick "$folder/detect.json" "$device")
if [ -z "${id:-}" ]; then
  say ""
  say "No usable device${device:+ is called $device}: see \`detect.json\`."
  exit 1
fi
[ "$kind" = cpu ] && skip "accelerator" "none is usable here; the processors are checked instead"
step "doctor" 40 doctor.json vllm-probe doctor --json
step "adapter check $vendor" 110 conformance.json vllm-probe adapter check "$vendor" --device "$id" --json
step "bench --quick" 120 bench.txt vllm-probe bench --quick --device "$id" --emit "$folder/capability.json"
if [ ! -f "$folder/capability.json" ]; then
  skip "negotiate, serve" "there is no capability document to start from"
elif step "small model" 10 model.txt python "$root/tools/device_check.py" model "$folder/model" &&
  step "negotiate" 30 runtime.txt vllm-probe negotiate --model "$folder/model" --device "$id" \
    --capability "$folder/capability.json" --output "$folder/runtime.json"; then
  step "serve, embed, compare" 80 serve.json python "$root/tools/device_check.py" serve "$folder/runtime.json"
else
  skip "serve" "there is no runtime config"
fi

say ""
say "$id, $vendor, $kind. $failures failed, $SECONDS s in all."
say ""
[ -f "$folder/bench.txt" ] && { printf '```text\n'; cat "$folder/bench.txt"; printf '```\n'; } >>"$report"
{ printf '\n```text\n'; cat "$folder/versions.txt"; printf '```\n'; } >>"$report"
echo "report: $report"
[ "$failures" -eq 0 ]
