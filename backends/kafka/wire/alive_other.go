//go:build !unix

package wire

// alive cannot be told here without waiting.
func (cn *conn) alive() bool { return true }
