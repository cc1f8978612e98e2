package wire

import (
	"bytes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
)

// scram is the client's side of one login by SCRAM (RFC 5802), as Kafka's brokers speak it: without channel binding, and,
// which the libraries for it do not do, without SASLprep, so that the bytes of user and password count as they are.
type scram struct {
	hash      func() hash.Hash
	user      string
	password  string
	nonce     string
	bare      string // the first message without its header
	signature []byte // what the server has to prove itself with
}

// maxIterations bounds the work that a broker may ask for; Kafka's own limit for new secrets is 16384.
const maxIterations = 1 << 20

// gs2 is the header: no channel binding, no other identity.
const gs2 = "n,,"

func newScram(m Mechanism, user, password string) (*scram, error) {
	s := &scram{hash: sha256.New, user: user, password: password}
	if m == ScramSHA512 {
		s.hash = sha512.New
	}
	var nonce [18]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, err
	}
	s.nonce = base64.StdEncoding.EncodeToString(nonce[:])
	return s, nil
}

var scramName = strings.NewReplacer("=", "=3D", ",", "=2C")

// first is the client's first message.
func (s *scram) first() []byte {
	s.bare = "n=" + scramName.Replace(s.user) + ",r=" + s.nonce
	return []byte(gs2 + s.bare)
}

// final answers the server's first message with the proof that we know the password.
func (s *scram) final(server []byte) ([]byte, error) {
	nonce, salt, iterations, err := s.parse(string(server))
	if err != nil {
		return nil, err
	}
	salted, err := pbkdf2.Key(s.hash, s.password, salt, iterations, s.hash().Size())
	if err != nil {
		return nil, err
	}
	clientKey := s.mac(salted, "Client Key")
	h := s.hash()
	h.Write(clientKey)
	without := "c=" + base64.StdEncoding.EncodeToString([]byte(gs2)) + ",r=" + nonce
	message := s.bare + "," + string(server) + "," + without
	proof := s.mac(h.Sum(nil), message)
	subtle.XORBytes(proof, proof, clientKey)
	s.signature = s.mac(s.mac(salted, "Server Key"), message)
	return []byte(without + ",p=" + base64.StdEncoding.EncodeToString(proof)), nil
}

// parse reads r=NONCE,s=SALT,i=ITERATIONS.
func (s *scram) parse(server string) (nonce string, salt []byte, iterations int, err error) {
	for _, field := range strings.Split(server, ",") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "r":
			nonce = value
		case "s":
			salt, err = base64.StdEncoding.DecodeString(value)
		case "i":
			iterations, err = strconv.Atoi(value)
		case "e":
			err = fmt.Errorf("the broker answers %q", value)
		}
		if err != nil {
			return "", nil, 0, err
		}
	}
	switch {
	case !strings.HasPrefix(nonce, s.nonce) || nonce == s.nonce, len(salt) == 0:
		return "", nil, 0, errors.New("the broker's first SCRAM message does not fit ours")
	case iterations < 1 || iterations > maxIterations:
		return "", nil, 0, fmt.Errorf("the broker asks for %d iterations of SCRAM", iterations)
	}
	return nonce, salt, iterations, nil
}

// verify checks the server's last message: one that does not know our secret cannot sign it.
func (s *scram) verify(server []byte) error {
	value, found := bytes.CutPrefix(server, []byte("v="))
	signature, err := base64.StdEncoding.DecodeString(string(value))
	if !found || err != nil || !hmac.Equal(signature, s.signature) {
		return ErrProof
	}
	return nil
}

func (s *scram) mac(key []byte, message string) []byte {
	m := hmac.New(s.hash, key)
	m.Write([]byte(message))
	return m.Sum(nil)
}
