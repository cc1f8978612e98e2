package wire

import "fmt"

// Code is a broker's error code, an error of its own so that errors.Is finds it inside an [Error].
type Code int16

// The codes that somebody here looks at.
const (
	UnknownServerError         Code = -1
	OffsetOutOfRange           Code = 1
	CorruptMessage             Code = 2
	UnknownTopic               Code = 3
	LeaderNotAvailable         Code = 5
	NotLeader                  Code = 6
	RequestTimedOut            Code = 7
	BrokerNotAvailable         Code = 8
	ReplicaNotAvailable        Code = 9
	MessageTooLarge            Code = 10
	NetworkException           Code = 13
	InvalidTopic               Code = 17
	RecordListTooLarge         Code = 18
	NotEnoughReplicas          Code = 19
	NotEnoughReplicasAppended  Code = 20
	TopicAuthorizationFailed   Code = 29
	ClusterAuthorizationFailed Code = 31
	InvalidTimestamp           Code = 32
	UnsupportedSASLMechanism   Code = 33
	IllegalSASLState           Code = 34
	UnsupportedVersion         Code = 35
	TopicExists                Code = 36
	InvalidPartitions          Code = 37
	InvalidReplication         Code = 38
	InvalidReplicaAssignment   Code = 39
	InvalidConfig              Code = 40
	NotController              Code = 41
	InvalidRequest             Code = 42
	PolicyViolation            Code = 44
	StorageError               Code = 56
	SASLAuthenticationFailed   Code = 58
	FencedLeaderEpoch          Code = 74
	UnknownLeaderEpoch         Code = 75
	OffsetNotAvailable         Code = 78
	InvalidRecord              Code = 87
	ThrottlingQuotaExceeded    Code = 89
)

var codeNames = map[Code]string{
	UnknownServerError:         "unknown server error",
	OffsetOutOfRange:           "offset out of range",
	CorruptMessage:             "corrupt message",
	UnknownTopic:               "no such topic or partition",
	LeaderNotAvailable:         "the partition has no leader now",
	NotLeader:                  "the broker is not the partition's leader",
	RequestTimedOut:            "the replicas did not acknowledge in time",
	BrokerNotAvailable:         "the broker is not available",
	ReplicaNotAvailable:        "a replica is not available",
	MessageTooLarge:            "the record is larger than the topic allows",
	NetworkException:           "the broker lost a connection",
	InvalidTopic:               "the topic's name is not valid",
	RecordListTooLarge:         "the batch is larger than a segment",
	NotEnoughReplicas:          "fewer replicas are in sync than min.insync.replicas",
	NotEnoughReplicasAppended:  "fewer replicas were in sync than min.insync.replicas after the append",
	TopicAuthorizationFailed:   "not authorized for the topic",
	ClusterAuthorizationFailed: "not authorized for the cluster",
	InvalidTimestamp:           "the record's timestamp is out of range",
	UnsupportedSASLMechanism:   "the broker does not offer that SASL mechanism",
	IllegalSASLState:           "the broker takes no login there",
	UnsupportedVersion:         "the broker does not speak that version",
	TopicExists:                "the topic exists already",
	InvalidPartitions:          "the number of partitions is not valid",
	InvalidReplication:         "the replication factor is not valid",
	InvalidReplicaAssignment:   "the assignment of replicas is not valid",
	InvalidConfig:              "the topic's configuration is not valid",
	NotController:              "the broker is not the controller",
	InvalidRequest:             "invalid request",
	PolicyViolation:            "refused by a policy of the cluster",
	StorageError:               "the broker's disk failed",
	SASLAuthenticationFailed:   "login failed",
	FencedLeaderEpoch:          "the leader's epoch is out of date",
	UnknownLeaderEpoch:         "the broker does not know that leader's epoch yet",
	OffsetNotAvailable:         "the new leader has not caught up yet",
	InvalidRecord:              "the broker refuses the record",
	ThrottlingQuotaExceeded:    "a quota is exceeded",
}

// Error is the code in words, with its number for whoever looks it up in Kafka's protocol guide.
func (c Code) Error() string {
	name := codeNames[c]
	if name == "" {
		name = "error of the broker"
	}
	return fmt.Sprintf("%s (Kafka error %d)", name, int16(c))
}

// passing tells whether a reader may ask again: another broker leads, or will in a moment.
func (c Code) passing() bool {
	switch c {
	case LeaderNotAvailable, NotLeader, RequestTimedOut, BrokerNotAvailable, ReplicaNotAvailable, NetworkException,
		NotController, StorageError, FencedLeaderEpoch, UnknownLeaderEpoch, OffsetNotAvailable, ThrottlingQuotaExceeded:
		return true
	}
	return false
}

// unappended tells whether a broker that answers a produce with c has positively not appended the record.
//
// NotLeader is not among them: a leader that has appended, and loses its office while it waits for the replicas, answers
// with the same code as one that was never asked rightly, and the record may be in the new leader's log.
func (c Code) unappended() bool {
	switch c {
	case CorruptMessage, UnknownTopic, LeaderNotAvailable, MessageTooLarge, InvalidTopic, RecordListTooLarge, NotEnoughReplicas,
		TopicAuthorizationFailed, ClusterAuthorizationFailed, InvalidTimestamp, UnsupportedVersion, InvalidRequest, PolicyViolation,
		InvalidRecord, IllegalSASLState, ThrottlingQuotaExceeded:
		return true
	}
	return false
}
