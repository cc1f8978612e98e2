// Package ledger is the rules by which a Kafka topic is a lock: records in, state out. It knows no network, no clock and no
// configuration, so that whoever reads the same records comes to the same answer, in whatever process, however often and
// from wherever in the log.
//
// # Who has a lease
//
// A partition is a total order. Every operation on a key is a record in it, and [State.Apply] decides what each record does
// from nothing but the key's state before it and what the broker wrote beside it: its offset, the time of its append, and
// the epoch of the leader that appended it. A LOCK is granted if, at its own append, a slot is free; otherwise the same
// record is the refusal.
//
// # How a reader need not begin at the beginning
//
// Each record carries what its writer knew when it wrote it: the key's whole state as of an earlier offset ([Carry.AsOf]),
// and a path through an index of all keys of the partition as of that offset. Between that offset and its own, others may
// have written; a reader who takes up the state there reads those records again, and so comes to what a reader of the whole
// log comes to. See [Book].
//
// # When the log has been cut
//
// Retention, or somebody by hand, may take the beginning of the log away. What the last record of a key carries is still
// believed, since it may be all that is left of a lease that somebody relies on. But a process that has read nothing of what
// the log still has knows too much ([Book.Cut]): it must not write what it knows, or it would bring back a lease whose
// records are gone. Such a lease is lost, and its holder learns it at the next beat.
package ledger
