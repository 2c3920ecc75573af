# Makes a store of two example sessions, lets the commands find it, and removes it with the shell.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
HOLDFAST_STORE="sqlite:///$folder/example.db"
HOLDFAST_HOME="$folder/home"
export HOLDFAST_STORE HOLDFAST_HOME
holdfast import docs/examples/sessions.jsonl 2> /dev/null
