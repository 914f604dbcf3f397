//! Webhooks: a POST of JSON.

use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig, parse_pem};

use crate::message::Message;
use crate::outlet::{SEND_PATIENCE, Sender};
use crate::secret;
use crate::settings::Webhook;

impl Sender for Webhook {
    fn send(&self, message: &Message) -> Result<(), String> {
        let body = serde_json::to_vec(&message.body(self.shape)).map_err(|e| e.to_string())?;
        let url = secret::read(&self.url_file)?.unwrap_or_else(|| self.url.clone());
        check_url(self, &url)?;
        let mut post = agent(self)?.post(&url).content_type("application/json");
        if let Some(token) = secret::read(&self.token_file)? {
            post = post.header("Authorization", format!("Bearer {token}"));
        }
        // An error may show the URL, which is a secret of some services: not its path.
        let host = url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_string));
        let failed = |error: ureq::Error| {
            format!("{}: {error}", host.unwrap_or_default()).replace(&url, "the URL")
        };
        let answer = post.send(&body).map_err(failed)?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("the server answered {status}")),
        }
    }
}

/// Finds settings that cannot be.
///
/// # Errors
/// What is wrong.
pub(crate) fn check(hook: &Webhook) -> Result<(), String> {
    match (hook.url.is_empty(), hook.url_file.as_os_str().is_empty()) {
        (true, false) if hook.url_file.is_absolute() => Ok(()),
        (true, false) => Err("url_file: name the file by an absolute path".into()),
        (false, false) => Err("url, url_file: one of the two".into()),
        // It is read when something is sent, so that it may change.
        (_, true) => check_url(hook, &hook.url),
    }
}

fn check_url(hook: &Webhook, url: &str) -> Result<(), String> {
    let uri: Uri = url.parse().map_err(|_| "url: is no URL".to_string())?;
    match (uri.scheme_str(), uri.host()) {
        (Some("https" | "http"), Some(host)) if !host.is_empty() => {}
        _ => return Err("url: begins with https:// or http://, and names a host".into()),
    }
    if uri.scheme_str() == Some("http") && !hook.token_file.as_os_str().is_empty() {
        return Err("token_file: http:// would send the token in the clear".into());
    }
    Ok(())
}

fn agent(hook: &Webhook) -> Result<Agent, String> {
    let roots = match secret::authorities(&hook.ca)? {
        None => RootCerts::PlatformVerifier,
        Some(pem) => {
            let mut roots = Vec::new();
            for item in parse_pem(&pem) {
                match item.map_err(|error| format!("{}: {error}", hook.ca.display()))? {
                    ureq::tls::PemItem::Certificate(certificate) => roots.push(certificate),
                    _ => continue,
                }
            }
            let roots: Vec<Certificate<'static>> = roots;
            RootCerts::new_with_certs(&roots)
        }
    };
    let config = Agent::config_builder()
        .timeout_global(Some(SEND_PATIENCE))
        .max_redirects(0)
        .http_status_as_error(false)
        .tls_config(TlsConfig::builder().root_certs(roots).build());
    Ok(config.build().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Shape;

    #[test]
    fn settings_that_cannot_be_are_refused() {
        let hook = |url: &str, token: &str| Webhook {
            name: String::new(),
            severity: aquifer_api::Severity::Warning,
            url: url.into(),
            url_file: "".into(),
            shape: Shape::Json,
            ca: "".into(),
            token_file: token.into(),
        };
        assert_eq!(check(&hook("https://hooks.example.com/T0/x", "")), Ok(()));
        assert_eq!(check(&hook("http://127.0.0.1:8080/", "")), Ok(()));
        for bad in ["", "ftp://x/", "/path", "https:///x"] {
            assert!(check(&hook(bad, "")).is_err(), "{bad}");
        }
        assert!(check(&hook("http://a/", "/token")).unwrap_err().contains("in the clear"));
        let by_file = |url: &str, file: &str| Webhook { url_file: file.into(), ..hook(url, "") };
        assert_eq!(check(&by_file("", "/etc/aquifer/hook")), Ok(()));
        assert!(check(&by_file("", "hook")).unwrap_err().contains("absolute"));
        assert!(check(&by_file("https://a/", "/hook")).unwrap_err().contains("one of the two"));
    }

    /// The secret is in no error, and a file that others can read is no secret.
    #[test]
    fn a_url_in_a_file_is_read_when_something_is_sent() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hook");
        let hook = Webhook {
            name: String::new(),
            severity: aquifer_api::Severity::Warning,
            url: String::new(),
            url_file: file.clone(),
            shape: Shape::Json,
            ca: "".into(),
            token_file: "".into(),
        };
        let message = Message::test("store", 1);
        std::fs::write(&file, "http://127.0.0.1:1/secret-part\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(hook.send(&message).unwrap_err().contains("chmod 600"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let error = hook.send(&message).unwrap_err();
        assert!(error.contains("127.0.0.1") && !error.contains("secret-part"), "{error}");
        std::fs::write(&file, "ftp://x/").unwrap();
        assert!(hook.send(&message).unwrap_err().contains("https://"));
    }
}
