package backends

import "slices"

// Matches tells whether r is one of the records that q asks for, its limit apart.
func (q Query) Matches(r Record) bool {
	return (q.Key == "" || q.Key == r.Key) && !r.EndedAt.Before(q.Since) && (q.Outcomes == nil || slices.Contains(q.Outcomes, r.Outcome))
}

// Select returns those of all that q asks for, at most as many as its limit says, in the order in which they came. It
// reuses all. Stores whose query language does not filter, or that add records to what it found, end with it.
func (q Query) Select(all []Record) []Record {
	all = slices.DeleteFunc(all, func(r Record) bool { return !q.Matches(r) })
	if q.Limit > 0 && len(all) > q.Limit {
		all = all[:q.Limit]
	}
	return all
}
