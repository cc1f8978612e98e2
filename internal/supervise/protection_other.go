//go:build unix && !linux

package supervise

// Unprotected says what this system does not protect.
func Unprotected() []Gap {
	const remedy = "run what needs it on Linux"
	return []Gap{
		{"this system knows no subreapers and shows no processes to lockrun: " +
			"descendants that leave COMMAND's process group are not found, neither to stop them nor to wait for them", remedy},
		{"if lockrun and its guard are killed at once, COMMAND may run on", remedy},
		{"only HUP and INT are passed on as ignored: " +
			"COMMAND gets the default for other signals that lockrun's parent ignored", remedy},
		{"Ctrl-Z does not stop a COMMAND that runs in a pipeline or from a script", remedy},
	}
}
