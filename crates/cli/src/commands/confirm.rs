//! `aquifer confirm`: acts over the network that wait for a second person.

use std::io::IsTerminal;

use aquifer_api::client::Client;
use aquifer_api::shown::shown;
use aquifer_api::time::text_s;
use aquifer_api::{
    AfterWait, ConfirmAct, ConfirmationsQuery, Confirmed, On, RefuseAct, TokenMade, WaitingAct,
};

use super::pool::ask;
use super::{Output, tell, token};
use crate::failure::Failure;
use crate::table::Table;

pub(super) async fn list(client: &Client, output: Output) -> Result<(), Failure> {
    let waiting = client.ask(&ConfirmationsQuery).await?;
    output.answer(&waiting, |waiting| {
        let mut table = Table::new(&["NUMBER", "ASKED", "BY", "UNTIL", "THEN", "ACT"]);
        for of in waiting {
            table.row(row(of));
        }
        output.table(&table)
    })
}

fn row(waiting: &WaitingAct) -> Vec<String> {
    let WaitingAct { number, act, who, asked_s, until_s, then } = waiting;
    let then = match then {
        AfterWait::Dropped => "dropped",
        AfterWait::CarriedOut => "carried out",
    };
    let [asked, until] = [asked_s, until_s].map(|at| text_s(*at));
    vec![number.to_string(), asked, who.clone(), until, then.into(), act.clone()]
}

/// Carries out an act that waits, or drops it: the one that was shown.
pub(super) async fn decide(
    client: &Client,
    output: Output,
    (refuse, force): (bool, bool),
    number: u64,
) -> Result<(), Failure> {
    let waiting = client.ask(&ConfirmationsQuery).await?;
    let found = waiting.into_iter().find(|of| of.number == number);
    let WaitingAct { act, who, .. } = found.ok_or_else(|| {
        Failure::failed(format!("no act {number} waits: `aquifer confirm` lists those that do"))
    })?;
    let request = ConfirmAct { act };
    let (act, who) = (shown(&request.act), shown(&who));
    if refuse {
        let dropped = client.ask(&On::new(number.to_string(), RefuseAct(request))).await?;
        return output.answer(&dropped, |_| format!("dropped: {act}\n"));
    }
    if !force {
        if !std::io::stdin().is_terminal() {
            let why = format!("\"{act}\", asked for by {who}: -f confirms it without a question");
            return Err(Failure::usage(why));
        }
        let question = format!("{who} asks for this:\n  aquifer {act}\nType yes to carry it out: ");
        match ask(&question)?.as_str() {
            "yes" | "y" => {}
            typed => {
                let why = format!("act {number} waits as before: {typed:?} is not yes");
                return Err(Failure::failed(why));
            }
        }
    }
    let Confirmed { waited, answer } = client.ask(&On::new(number.to_string(), request)).await?;
    if let Ok(made) = serde_json::from_value::<TokenMade>(answer.clone()) {
        return token::show(output, &made);
    }
    let notes = answer.get("notes").and_then(|notes| notes.as_array()).cloned();
    let notes = notes.unwrap_or_default().into_iter();
    let notes: Vec<String> = notes.filter_map(|note| Some(note.as_str()?.to_string())).collect();
    let confirmed = Confirmed { waited, answer };
    output.answer(&confirmed, |_| format!("done: {act}\n"))?;
    tell(output, &notes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_comes_of_an_act() {
        let waiting = WaitingAct {
            number: 17,
            act: "pool destroy tank".into(),
            who: "token a from 10.0.0.1".into(),
            asked_s: 0,
            until_s: 3600,
            then: AfterWait::Dropped,
        };
        let line = "17 1970-01-01T00:00:00Z token a from 10.0.0.1 1970-01-01T01:00:00Z dropped \
                    pool destroy tank";
        assert_eq!(row(&waiting).join(" "), line);
        let waiting = WaitingAct { then: AfterWait::CarriedOut, ..waiting };
        assert_eq!(row(&waiting)[4], "carried out");
    }
}
