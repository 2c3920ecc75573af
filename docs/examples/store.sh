# Makes a store of two example sessions, lets the commands find it, and removes it with the shell.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
TURNSTATE_STORE="sqlite:///$folder/example.db"
TURNSTATE_HOME="$folder/home"
export TURNSTATE_STORE TURNSTATE_HOME
turnstate import docs/examples/sessions.jsonl 2> /dev/null
