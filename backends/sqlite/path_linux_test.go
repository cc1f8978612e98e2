package sqlite

import (
	"testing"
)

// The numbers are those of statfs(2); a test cannot mount most of them.
func TestNetworkFileSystems(t *testing.T) {
	for magic, want := range map[int64]string{
		0x6969: "NFS", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x517b: "SMB", 0x01021997: "9p", 0x65735546: "FUSE", 0x00c36400: "Ceph",
		0x7461636f: "OCFS2", 0x0bd00bd0: "Lustre", 0x01161970: "GFS2",
		0xef53: "", 0x01021994: "", 0x58465342: "", 0x9123683e: "", 0x794c7630: "",
	} {
		if got := networked[magic]; got != want {
			t.Errorf("%#x is %q, want %q", magic, got, want)
		}
	}
	if name, err := fileSystem(t.TempDir()); name != "" || err != nil {
		t.Errorf("the folder for tests is on %q, %v", name, err)
	}
	if _, err := fileSystem("/nonexistent"); err == nil {
		t.Error("a folder that does not exist is on a file system")
	}
}
