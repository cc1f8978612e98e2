package wire

import "github.com/segmentio/kafka-go/protocol"

type createTopicsRequest struct {
	Topics       []createTopic `kafka:"min=v4,max=v4"`
	TimeoutMs    int32         `kafka:"min=v4,max=v4"`
	ValidateOnly bool          `kafka:"min=v4,max=v4"`
}

type createTopic struct {
	Name        string                  `kafka:"min=v4,max=v4"`
	Partitions  int32                   `kafka:"min=v4,max=v4"`
	Replication int16                   `kafka:"min=v4,max=v4"`
	Assignments []createTopicAssignment `kafka:"min=v4,max=v4"`
	Configs     []createTopicConfig     `kafka:"min=v4,max=v4"`
}

type createTopicAssignment struct {
	Partition int32   `kafka:"min=v4,max=v4"`
	Brokers   []int32 `kafka:"min=v4,max=v4"`
}

type createTopicConfig struct {
	Name  string `kafka:"min=v4,max=v4"`
	Value string `kafka:"min=v4,max=v4,nullable"`
}

type createTopicsResponse struct {
	ThrottleMs int32          `kafka:"min=v4,max=v4"`
	Topics     []createdTopic `kafka:"min=v4,max=v4"`
}

type createdTopic struct {
	Name      string `kafka:"min=v4,max=v4"`
	ErrorCode Code   `kafka:"min=v4,max=v4"`
	Message   string `kafka:"min=v4,max=v4,nullable"`
}

type describeConfigsRequest struct {
	Resources       []configResource `kafka:"min=v2,max=v2"`
	IncludeSynonyms bool             `kafka:"min=v2,max=v2"`
}

type configResource struct {
	Type  int8     `kafka:"min=v2,max=v2"`
	Name  string   `kafka:"min=v2,max=v2"`
	Names []string `kafka:"min=v2,max=v2,nullable"`
}

type describeConfigsResponse struct {
	ThrottleMs int32               `kafka:"min=v2,max=v2"`
	Resources  []describedResource `kafka:"min=v2,max=v2"`
}

type describedResource struct {
	ErrorCode Code             `kafka:"min=v2,max=v2"`
	Message   string           `kafka:"min=v2,max=v2,nullable"`
	Type      int8             `kafka:"min=v2,max=v2"`
	Name      string           `kafka:"min=v2,max=v2"`
	Entries   []describedEntry `kafka:"min=v2,max=v2"`
}

type describedEntry struct {
	Name      string             `kafka:"min=v2,max=v2"`
	Value     string             `kafka:"min=v2,max=v2,nullable"`
	ReadOnly  bool               `kafka:"min=v2,max=v2"`
	Source    int8               `kafka:"min=v2,max=v2"`
	Sensitive bool               `kafka:"min=v2,max=v2"`
	Synonyms  []describedSynonym `kafka:"min=v2,max=v2"`
}

type describedSynonym struct {
	Name   string `kafka:"min=v2,max=v2"`
	Value  string `kafka:"min=v2,max=v2,nullable"`
	Source int8   `kafka:"min=v2,max=v2"`
}

type saslHandshakeRequest struct {
	Mechanism string `kafka:"min=v1,max=v1"`
}

type saslHandshakeResponse struct {
	ErrorCode  Code     `kafka:"min=v1,max=v1"`
	Mechanisms []string `kafka:"min=v1,max=v1"`
}

type saslAuthenticateRequest struct {
	Data []byte `kafka:"min=v1,max=v1"`
}

type saslAuthenticateResponse struct {
	ErrorCode  Code   `kafka:"min=v1,max=v1"`
	Message    string `kafka:"min=v1,max=v1,nullable"`
	Data       []byte `kafka:"min=v1,max=v1"`
	LifetimeMs int64  `kafka:"min=v1,max=v1"`
}

func (*createTopicsRequest) ApiKey() protocol.ApiKey      { return protocol.CreateTopics }
func (*createTopicsResponse) ApiKey() protocol.ApiKey     { return protocol.CreateTopics }
func (*describeConfigsRequest) ApiKey() protocol.ApiKey   { return protocol.DescribeConfigs }
func (*describeConfigsResponse) ApiKey() protocol.ApiKey  { return protocol.DescribeConfigs }
func (*saslHandshakeRequest) ApiKey() protocol.ApiKey     { return protocol.SaslHandshake }
func (*saslHandshakeResponse) ApiKey() protocol.ApiKey    { return protocol.SaslHandshake }
func (*saslAuthenticateRequest) ApiKey() protocol.ApiKey  { return protocol.SaslAuthenticate }
func (*saslAuthenticateResponse) ApiKey() protocol.ApiKey { return protocol.SaslAuthenticate }
