//go:build unix

package wire

import (
	"crypto/tls"
	"syscall"
)

// alive tells whether an idle connection still stands, as far as this host knows, without waiting. Brokers hang up on
// connections that idle, and a request written into such a one is lost in a way that cannot be told from a lost answer.
func (cn *conn) alive() bool {
	raw := cn.Conn
	if secured, ok := raw.(*tls.Conn); ok {
		raw = secured.NetConn()
	}
	sc, ok := raw.(syscall.Conn)
	if !ok {
		return true
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	alive := false
	err = rc.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		// Nothing to read is what has to be: an end of file, an error and an answer that nobody waits for are not.
		alive = n <= 0 && (err == syscall.EAGAIN || err == syscall.EWOULDBLOCK)
	})
	return err == nil && alive
}
