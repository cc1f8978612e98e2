package main

// stores is what a run costs more when its lease or its record is in more than one store, against the same run with one.
func (b *bench) stores() ([]row, error) {
	url := func(name string) string { return "sqlite://" + b.at(name) }
	variants := []struct {
		what, store string
		options     []string
	}{
		{"", "one.db", nil},
		{"`--record` in the store of the lease", "same.db", []string{"--record", url("same.db")}},
		{"`--record` in another file", "lease.db", []string{"--record", url("record.db")}},
		{"two backends, both files", "first.db", []string{"-b", url("first.db"), "-b", url("second.db")}},
		{"`--ttl auto`, with a history of a hundred", "auto.db", []string{"--ttl", "auto"}},
		{"`--on-unavailable fallback`, not needed", "main.db", []string{"--on-unavailable", "fallback", "--fallback", url("fallback.db")}},
	}
	var all []*command
	for _, v := range variants {
		c, err := commandOf(b.at(v.store), b.lockrun, append(append([]string{"--key", "k"}, v.options...), "--", b.yes)...)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	codes := make([]int, len(all))
	if _, err := inTurns(100, codes, all...); err != nil { // makes the stores, and the history
		return nil, err
	}
	m, err := inTurns(b.runs, codes, all...)
	if err != nil {
		return nil, err
	}
	var rows []row
	for i, v := range variants[1:] {
		rows = append(rows, versus("a run with "+v.what+", against one without", m[i+1], m[0]))
	}
	return rows, nil
}
