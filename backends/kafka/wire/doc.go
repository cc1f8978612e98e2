// Package wire speaks the Kafka protocol, as far as a lock that lives in a topic needs it: append one record and learn
// the broker's time, read records with the broker's times and leader epochs, find offsets, look at a topic and create it.
//
// It builds on the protocol package of segmentio/kafka-go, for framing and encoding, and on nothing else of it:
//
//   - its root package costs each start of a program about 5 ms, because it registers by reflection every message that
//     Kafka knows; each of its message packages costs 0.05 to 0.2 ms in turn, and the nine needed here 0.9 ms. So the
//     messages here are declared in this package, in the one version that is spoken, and registered when the first
//     [Client] is made: a program that links this package and does not use it pays nothing for them;
//   - it drops the time that the broker gave to a record (the batch's MaxTimestamp where the batch says LogAppendTime)
//     and the leader's epoch, which are what decides a lock. So the batches of a fetch are decoded here.
//
// The versions are those of Kafka 2.4 (2019), which brokers up to 4.x speak as well. A broker that does not is told apart
// by ApiVersions, with an error that says so.
//
// # What is repeated
//
// Reading is repeated inside a call, within the context and [Config.Timeout], after whatever may pass: a broker that
// cannot be reached, a leader that has moved, a connection that broke. An append is never repeated once a byte of it may
// have left: [Error.Sent] tells that its outcome is not known, and whoever asked for it has to look into the log.
package wire
