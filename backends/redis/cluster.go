package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// cluster is a route by the slots of a Redis Cluster. go-redis has a client for clusters, but that one goes on choosing a
// master that refuses connections until its next reload, a minute later by default, and reloads in the background; here
// the map is asked for again after the first failure, from all nodes at once.
type cluster struct {
	seeds   []string
	servers known
	tag     func(bucket int) string

	mu    sync.Mutex
	nodes []string // by slot; nil: has to be asked for
}

const slots = 16384

func newCluster(c *config) *cluster {
	return &cluster{seeds: c.addrs, servers: known{c: c}, tag: func(b int) string { return fmt.Sprintf("%02x", b) }}
}

// slotMap is what one node says.
type slotMap struct {
	from  string
	slots []goredis.ClusterSlot
}

func (r *cluster) pick(ctx context.Context, bucket int) (*server, error) {
	r.mu.Lock()
	nodes := r.nodes
	r.mu.Unlock()
	if nodes == nil {
		var err error
		if nodes, err = r.reload(ctx); err != nil {
			return nil, err
		}
	}
	addr := nodes[slotOf(r.tag(bucket))]
	if addr == "" {
		return nil, errors.New("no node of the cluster has the slot")
	}
	return r.servers.get(addr), nil
}

// reload asks every node that was ever heard of, and believes the first that knows all slots.
func (r *cluster) reload(ctx context.Context) ([]string, error) {
	for _, a := range r.seeds {
		r.servers.get(a)
	}
	answers, err := askAll(ctx, r.servers.all(), askSlots, func(good []slotMap) bool { return full(good[len(good)-1]) })
	if err != nil {
		return nil, err
	}
	nodes := table(answers[len(answers)-1])
	r.mu.Lock()
	r.nodes = nodes
	r.mu.Unlock()
	return nodes, nil
}

func askSlots(ctx context.Context, c *goredis.Client) (slotMap, error) {
	//lint:ignore SA1019 CLUSTER SHARDS came with Redis 7, and 6.2 has to do
	v, err := c.ClusterSlots(ctx).Result()
	return slotMap{from: c.Options().Addr, slots: v}, err
}

func full(m slotMap) bool {
	n := 0
	for _, s := range m.slots {
		n += s.End - s.Start + 1
	}
	return n == slots
}

// table turns the ranges into a master for each slot. A node may leave its own host out: it is where we asked.
func table(m slotMap) []string {
	nodes := make([]string, slots)
	asked, _, _ := net.SplitHostPort(m.from)
	for _, s := range m.slots {
		if len(s.Nodes) == 0 {
			continue
		}
		addr := s.Nodes[0].Addr
		if strings.HasPrefix(addr, ":") {
			addr = net.JoinHostPort(asked, addr[1:])
		}
		for i := max(s.Start, 0); i <= min(s.End, slots-1); i++ {
			nodes[i] = addr
		}
	}
	return nodes
}

func (r *cluster) failed(s *server, err error) bool {
	if isReply(err) && !outdated(err) {
		return false
	}
	r.mu.Lock()
	r.nodes = nil
	r.mu.Unlock()
	if s != nil && !isReply(err) {
		s.drop()
	}
	return true
}

func (r *cluster) close() { r.servers.close() }

// slotOf is the slot of a hash tag: CRC16 (XMODEM) modulo 16384, as the Cluster specification has it.
func slotOf(tag string) int {
	crc := uint16(0)
	for _, b := range []byte(tag) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % slots)
}
