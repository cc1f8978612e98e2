package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// Phase is what was being done when something failed.
type Phase string

// The phases, in the order in which a connection comes to them.
const (
	PhaseDial     Phase = "connect to"
	PhaseTLS      Phase = "TLS with"
	PhaseVersions Phase = "greet"
	PhaseSASL     Phase = "log in to"
	PhaseMetadata Phase = "ask for the topic on"
	PhaseProduce  Phase = "append on"
	PhaseMark     Phase = "append a mark on"
	PhaseFetch    Phase = "read from"
	PhaseOffsets  Phase = "ask for offsets on"
	PhaseCreate   Phase = "create the topic on"
	PhaseConfig   Phase = "ask for the topic's configuration on"
)

// changes tells whether what is asked in this phase leaves something behind that must not be there twice.
func (p Phase) changes() bool { return p == PhaseProduce || p == PhaseCreate }

// alone is the phase in words where no broker follows.
func (p Phase) alone() string {
	words := strings.Fields(string(p))
	return strings.Join(words[:max(len(words)-1, 1)], " ")
}

// Error is what went wrong with one broker. Its text is one line that names phase and broker, and holds no secret.
type Error struct {
	Phase  Phase
	Broker string // "b1:9092"; "" where no broker was asked
	Err    error  // a Code where the broker answered
	Note   string // what the broker said beside its code
	Sent   bool   // the broker may have carried out what was asked of it, so that the outcome is not known
}

// Error gives phase, broker and cause.
func (e *Error) Error() string {
	s := oneLine(causeText(e.Err))
	switch {
	case e.Broker != "":
		s = string(e.Phase) + " " + e.Broker + ": " + s
	case !errors.Is(e.Err, ErrNoTopic) && !errors.Is(e.Err, ErrPartition):
		s = e.Phase.alone() + ": " + s
	}
	if e.Note != "" {
		s += " (" + oneLine(e.Note) + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// MaybeDone tells whether a request that failed with err may have been carried out all the same.
func MaybeDone(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Sent
}

// Errors that are found on this side.
var (
	ErrClosed    = errors.New("the client is closed")
	ErrNoTopic   = errors.New("there is no such topic")
	ErrPartition = errors.New("the topic has no such partition")
	ErrNoLeader  = errors.New("the partition has no leader")
	ErrNotKafka  = errors.New("the answer is not Kafka's")
	ErrOld       = errors.New("the broker does not speak the protocol of Kafka 2.4 or later")
	ErrBatch     = errors.New("the broker sent a damaged batch of records")
	ErrMechanism = errors.New("the broker offers no SASL mechanism that lockrun knows")
	ErrProof     = errors.New("the broker does not know the password")
)

// causeText keeps net's errors from repeating the address that the Error names already.
func causeText(err error) string {
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return dns.Err
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, context.Canceled):
		return "given up"
	case errors.As(err, &op) && op.Err != nil:
		return op.Err.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the broker closed the connection"
	}
	return err.Error()
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Advice is what a person can do about err, "" where nobody knows, and whether asking again would give the same answer.
func Advice(err error) (remedy string, permanent bool) {
	var e *Error
	asked := errors.As(err, &e)
	var code Code
	if errors.As(err, &code) {
		if asked && e.Phase == PhaseCreate && code == TopicAuthorizationFailed {
			code = ClusterAuthorizationFailed // brokers name the topic where either right would do
		}
		return adviseCode(code)
	}
	for _, a := range ownAdvice {
		if errors.Is(err, a.err) {
			return a.remedy, a.permanent
		}
	}
	if asked {
		return adviseTransport(e)
	}
	return "", false
}

var ownAdvice = []struct {
	err       error
	remedy    string
	permanent bool
}{
	{ErrNoTopic, "run lockrun init", true},
	{ErrPartition, "set ?partitions= to what the topic has", true},
	{ErrNoLeader, "look at the brokers that have its replicas", false},
	{ErrNotKafka, "check host and port, and whether that listener wants TLS (tls=true)", true},
	{ErrOld, "use Kafka 2.4 or later", true},
	{ErrMechanism, "enable SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN on that listener", true},
	{ErrBatch, "look at the broker's log and its disk", false},
	{ErrProof, "check that it is the right cluster: what answers there is not who it says it is", true},
}

func adviseCode(c Code) (remedy string, permanent bool) {
	switch c {
	case UnknownTopic:
		return "run lockrun init", true
	case TopicAuthorizationFailed:
		return "give the user Read, Write, Describe and DescribeConfigs on the topic, see docs/backends/kafka.md", true
	case ClusterAuthorizationFailed:
		return "give the user Create on the cluster or the topic, or let an administrator run what lockrun init --print shows", true
	case SASLAuthenticationFailed:
		return "check user and password, and ?sasl=", true
	case UnsupportedSASLMechanism:
		return "choose another ?sasl=, or leave it out", true
	case IllegalSASLState:
		return "that listener wants no login: leave user, password and sasl out, or use the port of a listener with SASL", true
	case NotEnoughReplicas, NotEnoughReplicasAppended:
		return "start the brokers that are down, or look at min.insync.replicas of the topic", false
	case MessageTooLarge, RecordListTooLarge:
		return "raise max.message.bytes of the topic", true
	case InvalidTopic:
		return "give the topic another name", true
	case InvalidPartitions, InvalidReplication, InvalidConfig, PolicyViolation, InvalidReplicaAssignment:
		return "let an administrator change and run what lockrun init --print shows", true
	case UnsupportedVersion:
		return "use Kafka 2.4 or later", true
	case StorageError:
		return "look at the broker's log and its disk", false
	case RequestTimedOut:
		return "look whether brokers that have its replicas are down or slow; --backend-timeout bounds the wait", false
	case ThrottlingQuotaExceeded:
		return "raise the user's quota, or ask less often", false
	}
	if c.passing() {
		return "asking again helps, once the brokers have settled who leads; if it does not, start those that are down", false
	}
	return "look at the broker's log", false
}

// adviseTransport is advice about failures to get an answer at all.
func adviseTransport(e *Error) (remedy string, permanent bool) {
	var record tls.RecordHeaderError
	var verify *tls.CertificateVerificationError
	var dns *net.DNSError
	late := errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, os.ErrDeadlineExceeded)
	switch {
	case errors.As(e.Err, &record):
		return "there is no TLS on that port: leave tls=true out, or use the broker's TLS port", true
	case errors.As(e.Err, &verify), isCertificate(e.Err):
		return "check ca and server_name of the URL, and the broker's certificate", true
	case strings.Contains(e.Err.Error(), "tls:"):
		return "check cert and key of the URL, and the broker's TLS settings", true
	case errors.As(e.Err, &dns) && dns.IsNotFound:
		return "check the host's name, and advertised.listeners of the brokers", true
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return "is the broker running there?", false
	case errors.Is(e.Err, syscall.EHOSTUNREACH), errors.Is(e.Err, syscall.ENETUNREACH):
		return "there is no way to that host from here: check address, network and firewall", false
	case e.Phase == PhaseTLS && late:
		return "is there TLS on that port, and is the broker alive?", false
	case e.Phase == PhaseVersions && late:
		return "is the broker alive, and does that port want TLS (tls=true)? --backend-timeout bounds the wait", false
	case late:
		return "is the broker alive, and the network open? --backend-timeout bounds the wait", false
	case lostConnection(e.Err):
		return adviseHangUp(e.Phase), false
	}
	return "", false
}

func adviseHangUp(p Phase) string {
	switch p {
	case PhaseVersions:
		return "the broker hung up at once: does that port want TLS (tls=true) or a client certificate (cert, key)?"
	case PhaseTLS:
		return "is there TLS on that port?"
	case PhaseMetadata:
		return "does that port want a login? give a user and a password"
	}
	return "if that is so each time: does that port want a login (a user and a password) or TLS (tls=true)?"
}

func isCertificate(err error) bool {
	var host x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &host) || errors.As(err, &unknown) || errors.As(err, &invalid)
}

func lostConnection(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func failed(p Phase, broker string, err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Phase: p, Broker: broker, Err: err}
}

// refused is the error of a broker that answered.
func refused(p Phase, broker string, c Code, note string) *Error {
	if note == codeNames[c] {
		note = ""
	}
	return &Error{Phase: p, Broker: broker, Err: c, Note: note}
}

// several joins what was learnt from several brokers: the last error that is not just "given up" leads, and the others
// are told of in its note.
func several(all []error) error {
	var lead *Error
	var others []string
	for _, err := range all {
		e := failed(PhaseDial, "", err)
		switch {
		case lead == nil:
			lead = e
		case weight(e) > weight(lead):
			others, lead = append(others, lead.Error()), e
		default:
			others = append(others, e.Error())
		}
	}
	if lead == nil || len(others) == 0 {
		return errOrNil(lead)
	}
	joined := *lead
	joined.Note = strings.TrimPrefix(fmt.Sprintf("%s; also %s", lead.Note, strings.Join(others, "; ")), "; ")
	return &joined
}

func errOrNil(e *Error) error {
	if e == nil {
		return nil
	}
	return e
}

// weight ranks errors by how much they tell: what a broker says, above what keeps us from asking it.
func weight(e *Error) int {
	var code Code
	switch {
	case errors.As(e.Err, &code):
		return 3
	case errors.Is(e.Err, context.Canceled):
		return 0
	case errors.Is(e.Err, context.DeadlineExceeded), errors.Is(e.Err, os.ErrDeadlineExceeded):
		return 1
	}
	return 2
}
