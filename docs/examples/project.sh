# Makes the store of two example sessions, and a small project to keep checkpoints of; it goes with the shell.
. docs/examples/store.sh
mkdir "$folder/project"
cd "$folder/project" || exit
printf 'copy parts\n' > plan.txt
