package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"knoot.dev/knoot/integration/stage"
)

// authority writes a certificate for a name, its key, and the authority's own certificate into a folder.
func authority(t *testing.T, dir, name string) (certificate, key, root string) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(file, kind string, der []byte) string {
		path := filepath.Join(dir, file)
		check(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	template := func(serial int64, subject string) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: subject}, NotBefore: time.Now().Add(-time.Hour),
			NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature}
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	above := template(1, "authority under test")
	above.IsCA, above.BasicConstraintsValid, above.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, above, above, signer.Public(), signer)
	check(err)
	root = write("root.pem", "CERTIFICATE", der)
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	leaf := template(2, name)
	leaf.DNSNames, leaf.ExtKeyUsage = []string{name}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err = x509.CreateCertificate(rand.Reader, leaf, above, own.Public(), signer)
	check(err)
	certificate = write("relay.pem", "CERTIFICATE", der)
	der, err = x509.MarshalPKCS8PrivateKey(own)
	check(err)
	return certificate, write("relay.key", "PRIVATE KEY", der), root
}

// A relay whose name an authority certifies needs no pin: whoever trusts the authority connects, and nobody else does.
func TestARelayWithAnAuthoritysCertificate(t *testing.T) {
	t.Parallel()
	certificate, key, root := authority(t, stage.Dir(t), "localhost")
	r := stage.NewRelay(t, nil, stage.Address(t), "--tls-cert", certificate, "--tls-key", key)
	_, port, err := net.SplitHostPort(r.Address)
	if err != nil {
		t.Fatal(err)
	}
	machines := newMachines(t, 3, "localhost:"+port, "")
	trusting, too, other := machines[0], machines[1], machines[2]
	for _, m := range []*machine{trusting, too} {
		m.Extra = append(m.Extra, "SSL_CERT_FILE="+root)
	}
	for _, m := range machines {
		m.start()
	}
	one := trusting.session("one", "")
	too.session("two", "")
	other.session("three", "")
	trusting.connected(t, "")
	too.connected(t, "")
	one.Write("src/tax.js", "export const rate = 21\n")
	see(t, []*machine{trusting, too}, "src/tax.js", "one")
	other.says(t, "localhost:"+port+" is not connected", "certificate")
	// The name is part of it.
	byNumber := newMachines(t, 1, r.Address, "")[0]
	byNumber.Extra = append(byNumber.Extra, "SSL_CERT_FILE="+root)
	byNumber.start()
	byNumber.session("one", "")
	byNumber.says(t, r.Address+" is not connected", "127.0.0.1")
}
