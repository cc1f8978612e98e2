package supervise

// Process groups, signals and their inheritance have no counterpart there that would keep lockrun's promises.
var _ = lockrun_does_not_support_windows_see_README
