package shell

import "strings"

// curl writes what it fetches where an option says, else to its output.
func (c *call) curl() {
	spec := options{
		short: "#012346aA:b:Bc:C:d:D:e:E:fF:gGhH:iIjJkK:lLm:M:nNo:OpP:qQ:r:RsSt:T:u:U:vVw:x:X:y:Y:z:Z:",
		long: "output= silent show-error location fail fail-with-body insecure head include request= header= data= data-raw= data-binary= data-urlencode= data-ascii= json= form= " +
			"form-string= user= user-agent= referer= cookie= cookie-jar= dump-header= max-time= connect-timeout= retry= retry-delay= retry-max-time= retry-all-errors " +
			"retry-connrefused compressed create-dirs output-dir= progress-bar no-progress-meter verbose url= get proxy= noproxy= cacert= cert= key= resolve= " +
			"http1.1 http1.0 http2 http2-prior-knowledge http3 ipv4 ipv6 tlsv1.2 tlsv1.3 ssl-reqd proto= proto-redir= max-redirs= max-filesize= range= limit-rate= location-trusted " +
			"write-out= upload-file= no-buffer netrc trace= trace-ascii= trace-time stderr= etag-save= etag-compare= libcurl= continue-at= " +
			"globoff parallel oauth2-bearer= unix-socket= basic digest negotiate anyauth fail-early styled-output no-styled-output help version interface= " +
			"speed-limit= speed-time= keepalive-time= tcp-nodelay path-as-is remote-time time-cond= url-query= connect-to= next",
	}
	p := c.parse(spec)
	dir := ""
	if o, ok := p.get("output-dir"); ok {
		if !o.value.known {
			c.r.opaque = true
			return
		}
		dir = strings.TrimSuffix(o.value.text, "/") + "/"
	}
	for _, o := range p.given {
		switch o.name {
		case "O", "K", "J":
			c.r.opaque = true
		case "w", "write-out":
			c.r.opaque = c.r.opaque || !o.value.known || strings.Contains(o.value.text, "%output{") || strings.HasPrefix(o.value.text, "@")
		case "o", "output":
			if o.value.text == "-" {
				continue
			}
			if strings.Contains(o.value.text, "#") {
				c.r.opaque = true // a part of the address
				continue
			}
			if !strings.HasPrefix(o.value.text, "/") {
				o.value.text = dir + o.value.text
			}
			c.r.write(c.sc, o.value, Write{})
		case "c", "cookie-jar", "D", "dump-header", "trace", "trace-ascii", "stderr", "etag-save", "libcurl":
			if o.value.text != "-" && o.value.text != "%" {
				c.r.write(c.sc, o.value, Write{})
			}
		}
	}
}

// wget writes what it fetches under the address's name, unless an option says where.
func (c *call) wget() {
	spec := options{
		short: "qdvbcNSi:o:a:O:P:t:T:w:e:U:Q:46hVnxrl:kKmpHLA:R:D:I:X:B:F",
		long: "quiet verbose no-verbose output-document= output-file= append-output= tries= timeout= wait= no-check-certificate header= user-agent= post-data= post-file= " +
			"method= body-data= user= password= show-progress progress= continue timestamping spider server-response directory-prefix= input-file= " +
			"content-disposition max-redirect= no-proxy retry-connrefused waitretry= limit-rate= referer= inet4-only inet6-only " +
			"https-only secure-protocol= ca-certificate= no-hsts no-cookies load-cookies= save-cookies= dns-timeout= connect-timeout= read-timeout= no-clobber",
	}
	// -nv, -nc and their like are two letters.
	for i, w := range c.args {
		if w.known && strings.HasPrefix(w.text, "-n") && len(w.text) == 3 {
			c.args[i] = literal("-n")
		}
	}
	p := c.parse(spec)
	if p.is("b", "r", "m", "p", "x", "k", "K", "i", "input-file", "e") {
		c.r.opaque = true
	}
	document := p.is("spider")
	for _, o := range p.given {
		switch o.name {
		case "O", "output-document":
			document = true
			if o.value.text != "-" {
				c.r.write(c.sc, o.value, Write{})
			}
		case "o", "output-file", "a", "append-output", "save-cookies":
			if o.value.text != "-" {
				c.r.write(c.sc, o.value, Write{})
			}
		}
	}
	if !document {
		c.r.opaque = true
	}
}
