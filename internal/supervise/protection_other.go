//go:build unix && !linux

package supervise

// Unprotected says, a sentence each, what this system does not protect.
func Unprotected() []string {
	return []string{
		"this system knows no subreapers and shows no processes to lockrun: " +
			"descendants that leave COMMAND's process group are not found, neither to stop them nor to wait for them",
		"if lockrun and its guard are killed at once, COMMAND may run on",
		"only HUP and INT are passed on as ignored: " +
			"COMMAND gets the default for other signals that lockrun's parent ignored",
		"Ctrl-Z does not stop a COMMAND that runs in a pipeline or from a script",
	}
}
