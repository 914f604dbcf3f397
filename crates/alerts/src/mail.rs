//! Mail, by SMTP.

use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::{Message as Letter, SmtpTransport, Transport};

use crate::message::Message;
use crate::outlet::{SEND_PATIENCE, Sender};
use crate::secret;
use crate::settings::{Mail, MailTls};

impl Sender for Mail {
    fn send(&self, message: &Message) -> Result<(), String> {
        let letter = letter(self, message)?;
        let server = transport(self)?;
        server.send(&letter).map(drop).map_err(|error| one_line(&error))
    }
}

/// Finds settings that cannot be.
///
/// # Errors
/// What is wrong.
pub(crate) fn check(mail: &Mail) -> Result<(), String> {
    address(mail)?;
    if mail.to.is_empty() {
        return Err("to: names nobody".into());
    }
    if mail.user.is_empty() != mail.password_file.as_os_str().is_empty() {
        return Err("user and password_file belong together".into());
    }
    if mail.tls == MailTls::None && !mail.user.is_empty() {
        return Err("tls = \"none\" would send the password in the clear".into());
    }
    for of in mail.to.iter().chain([&mail.from]) {
        mailbox(of)?;
    }
    Ok(())
}

fn mailbox(text: &str) -> Result<Mailbox, String> {
    text.parse().map_err(|error| format!("{text:?} is no address: {error}"))
}

/// Host and port.
fn address(mail: &Mail) -> Result<(String, u16), String> {
    let usual = match mail.tls {
        MailTls::Starttls => 587,
        MailTls::Tls => 465,
        MailTls::None => 25,
    };
    let wrong = || format!("server: {:?}: is no HOST or HOST:PORT", mail.server);
    let (host, port) = match mail.server.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && !host.is_empty() => {
            (host, port.parse().map_err(|_| wrong())?)
        }
        _ => (mail.server.as_str(), usual),
    };
    let host = host.trim_matches(['[', ']']);
    if host.is_empty() || port == 0 { Err(wrong()) } else { Ok((host.to_string(), port)) }
}

fn letter(mail: &Mail, message: &Message) -> Result<Letter, String> {
    let mut letter = Letter::builder().from(mailbox(&mail.from)?).subject(message.subject());
    letter = letter.message_id(Some(message.id()));
    for to in &mail.to {
        letter = letter.to(mailbox(to)?);
    }
    let letter = letter.header(ContentType::TEXT_PLAIN).body(message.text());
    letter.map_err(|error| error.to_string())
}

fn transport(mail: &Mail) -> Result<SmtpTransport, String> {
    let (host, port) = address(mail)?;
    let tls = match mail.tls {
        MailTls::None => Tls::None,
        MailTls::Starttls => Tls::Required(parameters(mail, &host)?),
        MailTls::Tls => Tls::Wrapper(parameters(mail, &host)?),
    };
    let mut server =
        SmtpTransport::builder_dangerous(host).port(port).tls(tls).timeout(Some(SEND_PATIENCE));
    if let Some(password) = secret::read(&mail.password_file)? {
        server = server.credentials(Credentials::new(mail.user.clone(), password));
    }
    Ok(server.build())
}

fn parameters(mail: &Mail, host: &str) -> Result<TlsParameters, String> {
    let mut tls = TlsParameters::builder(host.to_string());
    if let Some(pem) = secret::authorities(&mail.ca)? {
        let read = Certificate::from_pem(&pem).map_err(|error| one_line(&error))?;
        tls = tls.certificate_store(CertificateStore::None).add_root_certificate(read);
    }
    tls.build_rustls().map_err(|error| one_line(&error))
}

/// An error with its causes.
fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail(server: &str, tls: MailTls) -> Mail {
        Mail {
            name: String::new(),
            severity: aquifer_api::Severity::Warning,
            server: server.into(),
            tls,
            ca: "".into(),
            from: "Aquifer <aquifer@example.com>".into(),
            to: vec!["admin@example.com".into()],
            user: String::new(),
            password_file: "".into(),
        }
    }

    #[test]
    fn the_port_follows_from_tls_if_it_is_not_given() {
        let at = |server, tls| address(&mail(server, tls));
        assert_eq!(at("smtp.example.com", MailTls::Starttls), Ok(("smtp.example.com".into(), 587)));
        assert_eq!(at("smtp.example.com", MailTls::Tls).unwrap().1, 465);
        assert_eq!(at("localhost", MailTls::None).unwrap().1, 25);
        assert_eq!(at("10.0.0.1:2525", MailTls::None), Ok(("10.0.0.1".into(), 2525)));
        assert_eq!(at("[fd00::1]:2525", MailTls::None), Ok(("fd00::1".into(), 2525)));
        assert!(at("", MailTls::None).is_err() && at("x:y", MailTls::None).is_err());
    }

    #[test]
    fn settings_that_cannot_be_are_refused() {
        assert_eq!(check(&mail("smtp.example.com", MailTls::Starttls)), Ok(()));
        let nobody = Mail { to: Vec::new(), ..mail("a", MailTls::Tls) };
        assert!(check(&nobody).unwrap_err().contains("names nobody"));
        let bad = Mail { from: "no address".into(), ..mail("a", MailTls::Tls) };
        assert!(check(&bad).unwrap_err().contains("is no address"));
        let half = Mail { user: "me".into(), ..mail("a", MailTls::Tls) };
        assert!(check(&half).unwrap_err().contains("belong together"));
        let open =
            Mail { user: "me".into(), password_file: "/p".into(), ..mail("a", MailTls::None) };
        assert!(check(&open).unwrap_err().contains("in the clear"));
    }
}
