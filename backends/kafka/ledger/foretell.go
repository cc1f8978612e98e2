package ledger

// Foretell tells what a record has done that was appended at that time, as soon as its offset is known, and without reading
// it back. It is for who has written it. false: that cannot be told, and the record has to be read.
//
// What a record does follows from the key's state before it, its own words, its offset, its time, and the epoch of the
// leader that appended it. At the offset that the book would read next there is nothing between that state and the record;
// the broker has told the rest but for the epoch. And of the epoch it matters alone whether it is that of the key's last
// record (see tick): so both are tried, and only what they agree on is told. They do not agree wherever there is a lease
// that is run out, or that refuses, since it may have begun anew, nor where the time is before that of the last record.
//
// Until when a lease would have lasted that is over now, is not told.
//
// The book does not take the record in: the state after it has an epoch, and others will compare what we write with it.
func (b *Book) Foretell(e *Entry, offset, at int64) (Result, bool) {
	p := b.pages[e.Key]
	if p == nil || offset != b.next || b.torn || at <= 0 {
		return Result{}, false
	}
	r := Record{Offset: offset, Time: at, Epoch: p.state.Epoch}
	same := p.state.Clone().Apply(r, e)
	r.Epoch++
	other := p.state.Clone().Apply(r, e)
	if same.Did != Granted && same.Did != Renewed {
		same.Lease.Expires, other.Lease.Expires = 0, 0
	}
	agree := same.Did == other.Did && same.Time == other.Time && same.Lease == other.Lease && same.Has == other.Has
	// What the two say about others is not compared, and whoever wants to know reads.
	if !agree || same.Did == Refused || same.Did == Broken || same.Crashed != nil {
		return Result{}, false
	}
	return same, true
}
