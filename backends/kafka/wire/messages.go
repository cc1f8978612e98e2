package wire

import (
	"sync"

	"github.com/segmentio/kafka-go/protocol"
)

// The messages, each in the one version that is spoken here. Their layout is Kafka's protocol guide's; a field that is
// not of use here is there because it is on the wire.
const (
	produceVersion          = 8
	fetchVersion            = 11
	listOffsetsVersion      = 5
	metadataVersion         = 8
	createTopicsVersion     = 4
	describeConfigsVersion  = 2
	saslHandshakeVersion    = 1
	saslAuthenticateVersion = 1
	apiVersionsVersion      = 0
)

// spoken are the versions by message. All are below the flexible ones, so that the header of a response is a number.
var spoken = map[protocol.ApiKey]int16{
	protocol.Produce:          produceVersion,
	protocol.Fetch:            fetchVersion,
	protocol.ListOffsets:      listOffsetsVersion,
	protocol.Metadata:         metadataVersion,
	protocol.CreateTopics:     createTopicsVersion,
	protocol.DescribeConfigs:  describeConfigsVersion,
	protocol.SaslHandshake:    saslHandshakeVersion,
	protocol.SaslAuthenticate: saslAuthenticateVersion,
	protocol.ApiVersions:      apiVersionsVersion,
}

// register tells the codec about the messages, once a process. It is not done at the start of the program because it
// costs time that only a program which talks to Kafka should spend.
var register = sync.OnceFunc(func() {
	protocol.Register(&apiVersionsRequest{}, &apiVersionsResponse{})
	protocol.Register(&metadataRequest{}, &metadataResponse{})
	protocol.Register(&produceRequest{}, &produceResponse{})
	protocol.Register(&fetchRequest{}, &fetchResponse{})
	protocol.Register(&listOffsetsRequest{}, &listOffsetsResponse{})
})

// registerConfigs, registerSASL and registerAdmin are for what some, or most, runs do not need.
var registerConfigs = sync.OnceFunc(func() {
	protocol.Register(&describeConfigsRequest{}, &describeConfigsResponse{})
})

var registerSASL = sync.OnceFunc(func() {
	protocol.Register(&saslHandshakeRequest{}, &saslHandshakeResponse{})
	protocol.Register(&saslAuthenticateRequest{}, &saslAuthenticateResponse{})
})

var registerAdmin = sync.OnceFunc(func() {
	protocol.Register(&createTopicsRequest{}, &createTopicsResponse{})
})

type apiVersionsRequest struct {
	_ struct{} `kafka:"min=v0,max=v0"`
}

type apiVersionsResponse struct {
	ErrorCode Code         `kafka:"min=v0,max=v0"`
	APIs      []apiVersion `kafka:"min=v0,max=v0"`
}

type apiVersion struct {
	Key int16 `kafka:"min=v0,max=v0"`
	Min int16 `kafka:"min=v0,max=v0"`
	Max int16 `kafka:"min=v0,max=v0"`
}

type metadataRequest struct {
	Topics            []string `kafka:"min=v8,max=v8,nullable"`
	AutoCreate        bool     `kafka:"min=v8,max=v8"`
	ClusterOperations bool     `kafka:"min=v8,max=v8"`
	TopicOperations   bool     `kafka:"min=v8,max=v8"`
}

type metadataResponse struct {
	ThrottleMs        int32            `kafka:"min=v8,max=v8"`
	Brokers           []metadataBroker `kafka:"min=v8,max=v8"`
	ClusterID         string           `kafka:"min=v8,max=v8,nullable"`
	Controller        int32            `kafka:"min=v8,max=v8"`
	Topics            []metadataTopic  `kafka:"min=v8,max=v8"`
	ClusterOperations int32            `kafka:"min=v8,max=v8"`
}

type metadataBroker struct {
	ID   int32  `kafka:"min=v8,max=v8"`
	Host string `kafka:"min=v8,max=v8"`
	Port int32  `kafka:"min=v8,max=v8"`
	Rack string `kafka:"min=v8,max=v8,nullable"`
}

type metadataTopic struct {
	ErrorCode  Code                `kafka:"min=v8,max=v8"`
	Name       string              `kafka:"min=v8,max=v8"`
	Internal   bool                `kafka:"min=v8,max=v8"`
	Partitions []metadataPartition `kafka:"min=v8,max=v8"`
	Operations int32               `kafka:"min=v8,max=v8"`
}

type metadataPartition struct {
	ErrorCode Code    `kafka:"min=v8,max=v8"`
	ID        int32   `kafka:"min=v8,max=v8"`
	Leader    int32   `kafka:"min=v8,max=v8"`
	Epoch     int32   `kafka:"min=v8,max=v8"`
	Replicas  []int32 `kafka:"min=v8,max=v8"`
	ISR       []int32 `kafka:"min=v8,max=v8"`
	Offline   []int32 `kafka:"min=v8,max=v8"`
}

type produceRequest struct {
	TransactionalID string         `kafka:"min=v8,max=v8,nullable"`
	Acks            int16          `kafka:"min=v8,max=v8"`
	TimeoutMs       int32          `kafka:"min=v8,max=v8"`
	Topics          []produceTopic `kafka:"min=v8,max=v8"`
}

type produceTopic struct {
	Name       string             `kafka:"min=v8,max=v8"`
	Partitions []producePartition `kafka:"min=v8,max=v8"`
}

type producePartition struct {
	ID      int32  `kafka:"min=v8,max=v8"`
	Records []byte `kafka:"min=v8,max=v8"`
}

type produceResponse struct {
	Topics     []producedTopic `kafka:"min=v8,max=v8"`
	ThrottleMs int32           `kafka:"min=v8,max=v8"`
}

type producedTopic struct {
	Name       string              `kafka:"min=v8,max=v8"`
	Partitions []producedPartition `kafka:"min=v8,max=v8"`
}

type producedPartition struct {
	ID            int32                 `kafka:"min=v8,max=v8"`
	ErrorCode     Code                  `kafka:"min=v8,max=v8"`
	BaseOffset    int64                 `kafka:"min=v8,max=v8"`
	LogAppendTime int64                 `kafka:"min=v8,max=v8"`
	LogStart      int64                 `kafka:"min=v8,max=v8"`
	Errors        []producedRecordError `kafka:"min=v8,max=v8"`
	Message       string                `kafka:"min=v8,max=v8,nullable"`
}

type producedRecordError struct {
	Index   int32  `kafka:"min=v8,max=v8"`
	Message string `kafka:"min=v8,max=v8,nullable"`
}

type fetchRequest struct {
	ReplicaID      int32               `kafka:"min=v11,max=v11"`
	MaxWaitMs      int32               `kafka:"min=v11,max=v11"`
	MinBytes       int32               `kafka:"min=v11,max=v11"`
	MaxBytes       int32               `kafka:"min=v11,max=v11"`
	IsolationLevel int8                `kafka:"min=v11,max=v11"`
	SessionID      int32               `kafka:"min=v11,max=v11"`
	SessionEpoch   int32               `kafka:"min=v11,max=v11"`
	Topics         []fetchTopic        `kafka:"min=v11,max=v11"`
	Forgotten      []fetchForgetTopics `kafka:"min=v11,max=v11"`
	Rack           string              `kafka:"min=v11,max=v11"`
}

type fetchTopic struct {
	Name       string           `kafka:"min=v11,max=v11"`
	Partitions []fetchPartition `kafka:"min=v11,max=v11"`
}

type fetchPartition struct {
	ID           int32 `kafka:"min=v11,max=v11"`
	CurrentEpoch int32 `kafka:"min=v11,max=v11"`
	Offset       int64 `kafka:"min=v11,max=v11"`
	LogStart     int64 `kafka:"min=v11,max=v11"`
	MaxBytes     int32 `kafka:"min=v11,max=v11"`
}

type fetchForgetTopics struct {
	Name       string  `kafka:"min=v11,max=v11"`
	Partitions []int32 `kafka:"min=v11,max=v11"`
}

type fetchResponse struct {
	ThrottleMs int32          `kafka:"min=v11,max=v11"`
	ErrorCode  Code           `kafka:"min=v11,max=v11"`
	SessionID  int32          `kafka:"min=v11,max=v11"`
	Topics     []fetchedTopic `kafka:"min=v11,max=v11"`
}

type fetchedTopic struct {
	Name       string             `kafka:"min=v11,max=v11"`
	Partitions []fetchedPartition `kafka:"min=v11,max=v11"`
}

type fetchedPartition struct {
	ID           int32          `kafka:"min=v11,max=v11"`
	ErrorCode    Code           `kafka:"min=v11,max=v11"`
	HighWater    int64          `kafka:"min=v11,max=v11"`
	LastStable   int64          `kafka:"min=v11,max=v11"`
	LogStart     int64          `kafka:"min=v11,max=v11"`
	Aborted      []fetchAborted `kafka:"min=v11,max=v11"`
	PreferredRep int32          `kafka:"min=v11,max=v11"`
	Records      []byte         `kafka:"min=v11,max=v11,nullable"` // the raw batches, the last perhaps cut off
}

type fetchAborted struct {
	Producer    int64 `kafka:"min=v11,max=v11"`
	FirstOffset int64 `kafka:"min=v11,max=v11"`
}

type listOffsetsRequest struct {
	ReplicaID      int32              `kafka:"min=v5,max=v5"`
	IsolationLevel int8               `kafka:"min=v5,max=v5"`
	Topics         []listOffsetsTopic `kafka:"min=v5,max=v5"`
}

type listOffsetsTopic struct {
	Name       string                 `kafka:"min=v5,max=v5"`
	Partitions []listOffsetsPartition `kafka:"min=v5,max=v5"`
}

type listOffsetsPartition struct {
	ID           int32 `kafka:"min=v5,max=v5"`
	CurrentEpoch int32 `kafka:"min=v5,max=v5"`
	Timestamp    int64 `kafka:"min=v5,max=v5"`
}

type listOffsetsResponse struct {
	ThrottleMs int32                `kafka:"min=v5,max=v5"`
	Topics     []listedOffsetsTopic `kafka:"min=v5,max=v5"`
}

type listedOffsetsTopic struct {
	Name       string                   `kafka:"min=v5,max=v5"`
	Partitions []listedOffsetsPartition `kafka:"min=v5,max=v5"`
}

type listedOffsetsPartition struct {
	ID        int32 `kafka:"min=v5,max=v5"`
	ErrorCode Code  `kafka:"min=v5,max=v5"`
	Timestamp int64 `kafka:"min=v5,max=v5"`
	Offset    int64 `kafka:"min=v5,max=v5"`
	Epoch     int32 `kafka:"min=v5,max=v5"`
}

func (*apiVersionsRequest) ApiKey() protocol.ApiKey  { return protocol.ApiVersions }
func (*apiVersionsResponse) ApiKey() protocol.ApiKey { return protocol.ApiVersions }
func (*metadataRequest) ApiKey() protocol.ApiKey     { return protocol.Metadata }
func (*metadataResponse) ApiKey() protocol.ApiKey    { return protocol.Metadata }
func (*produceRequest) ApiKey() protocol.ApiKey      { return protocol.Produce }
func (*produceResponse) ApiKey() protocol.ApiKey     { return protocol.Produce }
func (*fetchRequest) ApiKey() protocol.ApiKey        { return protocol.Fetch }
func (*fetchResponse) ApiKey() protocol.ApiKey       { return protocol.Fetch }
func (*listOffsetsRequest) ApiKey() protocol.ApiKey  { return protocol.ListOffsets }
func (*listOffsetsResponse) ApiKey() protocol.ApiKey { return protocol.ListOffsets }
