#!/usr/bin/env bash
# Runs the DAGs by dag.test() against one sandbox on every supported Airflow: 3.3 (the project's lock), 3.1 and 2.11.
set -euo pipefail
cd "$(dirname "$0")/.."

sandbox=$PWD/build/matrix/sandbox
trap '.venv/bin/everstep sandbox down --directory "$sandbox" >/dev/null 2>&1 || true' EXIT
uv=$(command -v uv || echo "$PWD/build/tools/bin/uv")

environment_of() { # prints the Python of one Airflow
  if [ "$1" = 3.3 ]; then
    echo "$PWD/.venv/bin/python"
    return
  fi
  UV_PROJECT_ENVIRONMENT=$PWD/build/matrix/airflow-$1 UV_PYTHON_DOWNLOADS=never \
    "$uv" sync --quiet --frozen --project "matrix/airflow-$1" --python .venv/bin/python >&2
  echo "$PWD/build/matrix/airflow-$1/bin/python"
}

versions=("${@:-3.3}")
[ $# -gt 0 ] || versions=(3.3 3.1 2.11)
failed=()
for version in "${versions[@]}"; do
  echo "matrix: Airflow $version: preparing its environment"
  python=$(environment_of "$version")
  .venv/bin/everstep sandbox down --directory "$sandbox" >/dev/null 2>&1 || true
  rm -rf "$sandbox" "build/matrix/home-$version"
  .venv/bin/everstep sandbox up --directory "$sandbox"
  echo "matrix: Airflow $version: running the DAGs"
  # A task that waits for its next try would keep dag.test() going for ever.
  if timeout 600 "$python" scripts/run_dag.py --sandbox "$sandbox" --home "build/matrix/home-$version" \
    --expect-airflow "$version" --sweep >"build/matrix/airflow-$version.log" 2>&1; then
    echo "matrix: Airflow $version: success"
  else
    echo "matrix: Airflow $version: FAILED; the end of build/matrix/airflow-$version.log:"
    tail -n 40 "build/matrix/airflow-$version.log"
    failed+=("$version")
  fi
done
[ ${#failed[@]} -eq 0 ] || { echo "matrix: failed on Airflow ${failed[*]}"; exit 1; }
