//! `aquifer token`: tokens for the API over TCP.

use aquifer_api::client::Client;
use aquifer_api::time::text_s;
use aquifer_api::{
    BindToken, CreateToken, On, RevokeToken, RotateToken, TokenInfo, TokenMade, TokensQuery,
};

use super::{Output, tell};
use crate::args::TokenCommand;
use crate::failure::Failure;
use crate::table::Table;

pub(super) async fn run(
    command: TokenCommand,
    client: &Client,
    output: Output,
) -> Result<(), Failure> {
    match command {
        TokenCommand::Create { role, expires, certificates, datasets, name } => {
            let request = CreateToken { name, role, expires_s: expires, certificates, datasets };
            show(output, &client.ask(&request).await?)
        }
        TokenCommand::List => list(client, output).await,
        TokenCommand::Revoke { name } => {
            let gone = client.ask(&On::new(&name, RevokeToken)).await?;
            output.answer(&gone, |gone| format!("token {} holds no more\n", gone.name))
        }
        TokenCommand::Bind { certificates, none: _, name } => {
            let bound = client.ask(&On::new(&name, BindToken { certificates })).await?;
            output.answer(&bound, |bound| format!("token {} {}\n", bound.name, counts(bound)))
        }
        TokenCommand::Rotate { keep, expires, certificates, name } => {
            let certificates = Some(certificates).filter(|all| !all.is_empty());
            let keep_s = keep.unwrap_or(0);
            let request = RotateToken { keep_s, expires_s: expires, certificates };
            show(output, &client.ask(&On::new(&name, request)).await?)
        }
    }
}

/// Where a token counts.
fn counts(token: &TokenInfo) -> String {
    match &token.certificates[..] {
        [] => "counts on each connection".into(),
        [one] => format!("counts only with the client certificate {one}"),
        all => format!("counts only with one of the client certificates {}", all.join(", ")),
    }
}

/// The datasets for which a token counts; empty: all.
fn within(token: &TokenInfo) -> String {
    let names: Vec<&str> = token.datasets.iter().map(|name| name.as_str()).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(", for {} and what lies below", names.join(", ")),
    }
}

/// The token alone on stdout, so that it can go to a file.
pub(super) fn show(output: Output, made: &TokenMade) -> Result<(), Failure> {
    let TokenInfo { name, role, expires_s, earlier_until_s, .. } = &made.info;
    let until = expires_s.map_or(String::new(), |end_s| format!(" until {}", text_s(end_s)));
    let mut notes = vec![format!(
        "token {name} has the role {role}{}{until}. It is not shown again: keep it in a file with \
         mode 0600",
        within(&made.info)
    )];
    let earlier = earlier_until_s.map(text_s);
    notes.extend(earlier.map(|end| format!("the token before it holds until {end}")));
    if !made.info.certificates.is_empty() {
        notes.push(format!("it {}", counts(&made.info)));
    }
    tell(output, &notes);
    output.answer(made, |made| format!("{}\n", made.token))
}

async fn list(client: &Client, output: Output) -> Result<(), Failure> {
    let tokens = client.ask(&TokensQuery).await?;
    output.answer(&tokens, |tokens| {
        let mut table = Table::new(&["NAME", "ROLE", "MADE", "EXPIRES", "STATE"]);
        for token in tokens {
            table.row(row(token));
        }
        output.table(&table)
    })
}

fn row(token: &TokenInfo) -> Vec<String> {
    let TokenInfo { name, role, made_s, expires_s, expired, earlier_until_s, .. } = token;
    let state = match (expired, earlier_until_s) {
        (true, _) => "expired".to_string(),
        (false, Some(end_s)) => format!("rotated, the one before holds until {}", text_s(*end_s)),
        (false, None) => "valid".into(),
    };
    let expires = expires_s.map_or("never".into(), text_s);
    let begin = |one: &String| one.chars().take(SHOWN_DIGITS).collect::<String>();
    let certificates: Vec<String> = token.certificates.iter().map(begin).collect();
    let with = match &certificates[..] {
        [] => String::new(),
        all => format!(", with certificate {}", all.join(", ")),
    };
    vec![name.clone(), role.to_string(), text_s(*made_s), expires, state + &with + &within(token)]
}

/// Of a fingerprint in a table: enough to know it by. `--json` has all.
const SHOWN_DIGITS: usize = 16;

#[cfg(test)]
mod tests {
    use aquifer_api::Role;

    use super::*;

    #[test]
    fn a_token_says_how_long_it_and_the_one_before_hold() {
        let token = TokenInfo {
            name: "ci".into(),
            role: Role::Read,
            made_s: 0,
            expires_s: None,
            expired: false,
            earlier_until_s: None,
            certificates: Vec::new(),
            datasets: Vec::new(),
        };
        let of = |token: TokenInfo| row(&token).join(" ");
        assert_eq!(of(token.clone()), "ci read 1970-01-01T00:00:00Z never valid");
        let rotated = TokenInfo { earlier_until_s: Some(60), ..token.clone() };
        assert!(of(rotated).ends_with("the one before holds until 1970-01-01T00:01:00Z"));
        let expired = TokenInfo { expires_s: Some(1), expired: true, ..token.clone() };
        assert!(of(expired).ends_with("1970-01-01T00:00:01Z expired"));
        let certificates = vec!["ab".repeat(32), "cd".repeat(32)];
        let bound = TokenInfo { certificates, ..token };
        assert!(
            of(bound.clone())
                .ends_with(" valid, with certificate abababababababab, cdcdcdcdcdcdcdcd")
        );
        let datasets = ["tank/vms", "tank/b c"].map(|name| name.parse().unwrap()).into();
        let scoped = TokenInfo { datasets, certificates: Vec::new(), ..bound.clone() };
        assert!(of(scoped).ends_with(" never valid, for tank/vms, tank/b c and what lies below"));
        assert!(counts(&bound).ends_with(&format!(" {}, {}", "ab".repeat(32), "cd".repeat(32))));
    }
}
