//! The page without a browser: files, sessions, and what other sites cannot do.

use super::*;

const OWN: &str = "x-aquifer-page: 1\r\n";

impl Served {
    /// Head and body of the answer to a request with these headers.
    async fn say(&self, request: &str, headers: &str, body: &str) -> (String, String) {
        let mut stream = self.tls(at(1)).await.unwrap();
        let length = body.len();
        let request = format!(
            "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: \
             application/json\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_string(), body.to_string())
    }

    async fn log_in(&self, token: &str, headers: &str) -> (String, String) {
        let body = format!("{{\"token\": \"{token}\"}}");
        self.say("POST /v1/session", headers, &body).await
    }

    /// The header with the cookie of a new session.
    async fn session(&self, token: &str) -> String {
        let (head, body) = self.log_in(token, OWN).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head} {body}");
        let set = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        for word in ["__Host-", "; Path=/;", "; Secure;", "; HttpOnly;", "; SameSite=Strict"] {
            assert!(set.contains(word), "{set}");
        }
        assert!(!set.contains("Domain"), "{set}");
        format!("cookie: theme=dark; {}\r\n", set.split(';').next().unwrap())
    }
}

fn is(head: &str, status: u16) -> bool {
    head.starts_with(&format!("HTTP/1.1 {status}"))
}

#[tokio::test]
async fn strangers_get_the_page_and_nothing_else() {
    let served = serve_here();
    let (head, page) = served.say("GET /", "", "").await;
    assert!(is(&head, 200) && head.contains("text/html"), "{head}");
    // All that it names is there, of the right type, and nothing of it comes from elsewhere.
    let names = page.split('"').filter(|word| word.starts_with("/page/"));
    let names: Vec<&str> = names.collect();
    assert!(names.len() >= 5 && !page.contains("://") && !page.contains("style="), "{page}");
    for name in names {
        let (head, body) = served.say(&format!("GET {name}"), "", "").await;
        assert!(is(&head, 200) && !body.is_empty(), "{name}: {head}");
        let kind = if name.ends_with(".js") { "text/javascript" } else { "" };
        assert!(head.contains(kind), "{name}: {head}");
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
        let known = format!("if-none-match: {tag}\r\n");
        let (head, body) = served.say(&format!("GET {name}"), &known, "").await;
        assert!(is(&head, 304) && body.is_empty(), "{head}");
    }
    for path in ["/page/nothing.js", "/page/../app.js", "/page/vendor/..%2Fapp.js"] {
        let (head, _) = served.say(&format!("GET {path}"), "", "").await;
        assert!(is(&head, 404), "{path}: {head}");
    }
    // Each answer forbids the browser what the page does not need.
    for path in ["/", "/page/app.js", "/daemon"] {
        let (head, _) = served.say(&format!("GET {path}"), "", "").await;
        let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: "));
        let policy = policy.unwrap();
        let rules = ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'"];
        assert!(rules.iter().all(|rule| policy.contains(rule)), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert!(head.contains("x-content-type-options: nosniff"), "{head}");
        assert!(head.contains("cross-origin-resource-policy: same-origin"), "{head}");
    }
    let (head, _) = served.say("GET /daemon", "", "").await;
    assert!(is(&head, 401) && head.contains("cache-control: no-store"), "{head}");
}

#[tokio::test]
async fn a_session_does_what_its_token_does_until_either_ends() {
    let served = serve_here();
    let make = |name: &str, role| {
        let (name, certificates, datasets) = (name.into(), Vec::new(), Vec::new());
        let request = CreateToken { name, role, expires_s: None, certificates, datasets };
        served.tokens.create(&request).unwrap().token
    };
    let (reader, operator) = (make("eye", Role::Read), make("ci", Role::Operator));
    let [eye, ci] = [served.session(&reader).await, served.session(&operator).await];
    let (head, body) = served.say("GET /daemon", &eye, "").await;
    assert!(is(&head, 403) && body.contains("token eye has the role read"), "{head} {body}");
    let (_, body) = served.say("GET /daemon", &ci, "").await;
    assert_eq!(body, "token ci from 127.0.1.1 is here");

    // One that only counts has nothing to see; one that is none waits, as everywhere.
    let (head, body) = served.log_in(&make("sum", Role::Metrics), OWN).await;
    assert!(is(&head, 403) && body.contains("role metrics; this needs read"), "{body}");
    let begun = Instant::now();
    let (head, _) = served.log_in(&"0".repeat(64), OWN).await;
    assert!(is(&head, 401) && begun.elapsed() >= SHORT.wrong && !head.contains("set-cookie"));
    let (head, _) = served.log_in(&"0".repeat(10_000), OWN).await;
    assert!(is(&head, 413) || is(&head, 400), "{head}");

    // Logged out, it is over, also for who kept the cookie. So it is when the token is.
    let out = format!("{ci}{OWN}");
    let (head, _) = served.say("POST /v1/session/end", &out, "").await;
    assert!(is(&head, 200) && head.contains("Max-Age=0"), "{head}");
    let (head, body) = served.say("GET /daemon", &ci, "").await;
    assert!(is(&head, 401) && body.contains("log in again"), "{head} {body}");
    let again = served.session(&operator).await;
    served.tokens.rotate("ci", &RotateToken::default()).unwrap();
    assert!(is(&served.say("GET /daemon", &again, "").await.0, 401));
    served.tokens.revoke("eye").unwrap();
    assert!(is(&served.say("GET /daemon", &eye, "").await.0, 401));
    let (head, _) = served.say("GET /daemon", "cookie: __Host-aquifer=guess\r\n", "").await;
    assert!(is(&head, 401), "{head}");
}

/// Requests that a page of another site makes a browser send are refused.
#[tokio::test]
async fn no_other_site_acts_by_the_cookie() {
    let served = serve_here();
    let cookie = served.session(&served.token).await;
    let act = async |headers: &str| served.say("POST /act", headers, "{}").await;
    // A form, with the cookie of a browser that knows no SameSite.
    let (head, body) = act(&cookie).await;
    assert!(is(&head, 403) && body.contains("nothing was done"), "{head} {body}");
    // A script that could set the header (it cannot: nothing here allows it).
    for site in ["cross-site", "same-site", "none"] {
        let (head, _) = act(&format!("{cookie}{OWN}sec-fetch-site: {site}\r\n")).await;
        assert!(is(&head, 403), "{site}: {head}");
    }
    let asks = "origin: https://evil.example\r\naccess-control-request-method: POST\r\n\
                access-control-request-headers: x-aquifer-page\r\n";
    let (head, _) = served.say("OPTIONS /act", asks, "").await;
    assert!(!head.to_lowercase().contains("access-control-allow"), "{head}");
    // To log somebody in, or out, is an act too.
    assert!(is(&served.log_in(&served.token, "").await.0, 403));
    let from = format!("{OWN}sec-fetch-site: cross-site\r\n");
    assert!(is(&served.log_in(&served.token, &from).await.0, 403));
    assert!(is(&served.say("POST /v1/session/end", &cookie, "").await.0, 403));
    assert_eq!(served.acts.load(Ordering::Relaxed), 0);
    // The page's own, and a program with its token.
    let own = format!("{cookie}{OWN}sec-fetch-site: same-origin\r\n");
    assert!(is(&act(&own).await.0, 200));
    let bearer = format!("authorization: Bearer {}\r\n", served.token);
    assert!(is(&act(&bearer).await.0, 200));
    assert_eq!(served.acts.load(Ordering::Relaxed), 2);
}

/// Every file of the directory is served, as it is.
#[test]
fn the_files_of_the_page_are_those_of_its_directory() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let mut there = Vec::new();
    for directory in ["", "views/", "vendor/"] {
        for entry in std::fs::read_dir(root.join(directory)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                there.push(format!("{directory}{}", entry.file_name().to_str().unwrap()));
            }
        }
    }
    there.retain(|name| name != "vendor/README.md");
    there.sort();
    let mut served: Vec<(&str, &[u8])> = page::served().collect();
    served.sort();
    assert_eq!(there, served.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>());
    for (name, bytes) in served {
        assert!(std::fs::read(root.join(name)).unwrap() == bytes, "{name}");
    }
}

/// A cookie is worth no more than its token: bound, it needs the browser's certificate each time.
#[tokio::test]
async fn a_session_of_a_bound_token_needs_the_certificate_too() {
    let served = serve_here();
    let request = |certificates| CreateToken {
        name: "anna".into(),
        role: Role::Operator,
        expires_s: None,
        certificates,
        datasets: Vec::new(),
    };
    let token = served.tokens.create(&request(Vec::new())).unwrap().token;
    let cookie = served.session(&token).await;
    let bind = aquifer_api::BindToken { certificates: vec!["ab".repeat(32)] };
    served.tokens.bind("anna", &bind).unwrap();
    let (head, body) = served.say("GET /daemon", &cookie, "").await;
    assert!(is(&head, 401) && body.contains("none was shown"), "{head} {body}");
    let (head, _) = served.log_in(&token, OWN).await;
    assert!(is(&head, 401) && !head.contains("set-cookie"), "{head}");
}
