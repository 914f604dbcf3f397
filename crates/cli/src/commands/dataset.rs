//! `aquifer create`, `promote`, `destroy`, `clear`, `set`, `inherit`, `get`.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use aquifer_api::client::{Client, ClientError};
use aquifer_api::{
    ClearDamage, CloneSnapshot, CreateDataset, DatasetInfo, DatasetQuery, DestroyDataset,
    ErrorKind, Promote, PropertyValue, RenameDataset, SetProperties,
};
use serde::Serialize;

use super::columns::is_users;
use super::pool::{ask, confirm};
use super::{Output, tell};
use crate::args::{GetArgs, GetColumn, Source, assignment};
use crate::failure::Failure;
use crate::table::Table;

pub(super) async fn create(
    client: &Client,
    output: Output,
    properties: Vec<(String, String)>,
    name: String,
) -> Result<(), Failure> {
    let properties = properties.into_iter().collect();
    let done = client.ask(&CreateDataset { name, properties }).await?;
    output.answer(&done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}

pub(super) async fn clone(
    client: &Client,
    output: Output,
    properties: Vec<(String, String)>,
    (snapshot, names): (String, Vec<String>),
) -> Result<(), Failure> {
    let properties = properties.into_iter().collect();
    let mut names = names.into_iter();
    let (name, more) = (names.next().unwrap_or_default(), names.collect());
    let request = CloneSnapshot { snapshot, name, more, properties };
    let done = client.ask(&request).await?;
    output.answer(&done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}

pub(super) async fn destroy(
    client: &Client,
    output: Output,
    (recursive, clones): (bool, bool),
    force: bool,
    name: String,
) -> Result<(), Failure> {
    if !force {
        // Reports a mistyped name before it asks for confirmation.
        client.ask(&DatasetQuery { name: Some(name.clone()), recursive: false }).await?;
        confirm("dataset", &name)?;
    }
    let request = DestroyDataset { confirm: name.clone(), name, recursive, clones };
    let done = client.ask(&request).await?;
    output.answer(&done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}

pub(super) async fn rename(
    client: &Client,
    output: Output,
    name: String,
    new: String,
) -> Result<(), Failure> {
    let done = client.ask(&RenameDataset { name, new }).await?;
    output.answer(&done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}

/// Lets a clone list the snapshots that it begins with.
pub(super) async fn promote(
    client: &Client,
    output: Output,
    dataset: String,
) -> Result<(), Failure> {
    output.answer(&client.ask(&Promote { name: dataset }).await?, |_| String::new())
}

pub(super) async fn clear(
    client: &Client,
    output: Output,
    name: String,
    file: String,
) -> Result<(), Failure> {
    let done = client.ask(&ClearDamage { name, file }).await?;
    output.answer(&done, |_| String::new())
}

pub(super) async fn set(
    client: &Client,
    output: Output,
    force: bool,
    mut words: Vec<String>,
) -> Result<(), Failure> {
    let name = words.pop().unwrap_or_default();
    if name.contains('=') {
        return Err(Failure::usage("the dataset comes last: aquifer set PROPERTY=VALUE DATASET"));
    }
    let mut properties = BTreeMap::new();
    for word in words {
        let (property, value) = assignment(&word).map_err(Failure::usage)?;
        if properties.insert(property.clone(), Some(value)).is_some() {
            return Err(Failure::usage(format!("property {property} is given twice")));
        }
    }
    change(client, output, name, (properties, force)).await
}

pub(super) async fn inherit(
    client: &Client,
    output: Output,
    property: String,
    name: String,
) -> Result<(), Failure> {
    change(client, output, name, (BTreeMap::from([(property, None)]), false)).await
}

async fn change(
    client: &Client,
    output: Output,
    name: String,
    (properties, exports): (BTreeMap<String, Option<String>>, bool),
) -> Result<(), Failure> {
    let mut request = SetProperties { name, properties, exports };
    let done = match client.ask(&request).await {
        // A copy comes into service: the daemon says as what it is exported then.
        Err(ClientError::Api(why)) if why.kind == ErrorKind::Refused && may_ask(&request) => {
            match ask(&format!("{}\nType yes to go on: ", why.message))?.as_str() {
                "yes" | "y" => request.exports = true,
                typed => {
                    let name = &request.name;
                    let why = format!("{name:?} stands by as before: {typed:?} is not yes");
                    return Err(Failure::failed(why));
                }
            }
            client.ask(&request).await?
        }
        done => done?,
    };
    output.answer(&done, |_| String::new())?;
    tell(output, &done.notes);
    Ok(())
}

fn may_ask(request: &SetProperties) -> bool {
    let is_standby = request.properties.contains_key("standby");
    is_standby && !request.exports && std::io::stdin().is_terminal()
}

/// One line of `get`.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub dataset: String,
    #[serde(flatten)]
    pub property: PropertyValue,
}

pub(super) async fn get(client: &Client, output: Output, args: GetArgs) -> Result<(), Failure> {
    let GetArgs { recursive, sources, columns, properties, datasets } = args;
    if properties == super::receives::TOKEN {
        let lines = super::receives::tokens(client, datasets, recursive).await?;
        return output.answer(&lines, |lines| get_text(lines, &columns, output));
    }
    let mut infos = Vec::new();
    if datasets.is_empty() {
        infos = client.ask(&DatasetQuery::default()).await?;
    }
    for name in datasets {
        let query = DatasetQuery { name: Some(name), recursive };
        infos.extend(client.ask(&query).await?);
    }
    let wanted: Vec<&str> = properties.split(',').collect();
    let mut lines = Vec::new();
    for info in &infos {
        lines.extend(lines_of(info, &wanted)?);
    }
    lines.retain(|line| sources.is_empty() || sources.contains(&source(&line.property)));
    output.answer(&lines, |lines| get_text(lines, &columns, output))
}

/// Where a value comes from.
fn source(property: &PropertyValue) -> Source {
    match property.source.as_str() {
        "local" => Source::Local,
        "default" => Source::Default,
        "-" => Source::None,
        _ => Source::Inherited,
    }
}

/// The wanted properties of a dataset, in the wanted order.
fn lines_of(info: &DatasetInfo, wanted: &[&str]) -> Result<Vec<Line>, Failure> {
    let line =
        |property: &PropertyValue| Line { dataset: info.name.clone(), property: property.clone() };
    if wanted == ["all"] {
        return Ok(info.properties.iter().map(line).collect());
    }
    let unset = |name: &str| Line {
        dataset: info.name.clone(),
        property: PropertyValue { name: name.into(), value: "-".into(), source: "-".into() },
    };
    let find = |name: &&str| {
        let found = info.properties.iter().find(|property| property.name == *name);
        let found = found.map(line).or_else(|| is_users(name).then(|| unset(name)));
        found.ok_or_else(|| {
            let known: Vec<&str> =
                info.properties.iter().map(|property| property.name.as_str()).collect();
            Failure::failed(format!("property {name}: unknown; there are {}", known.join(", ")))
        })
    };
    wanted.iter().map(find).collect()
}

fn get_text(lines: &[Line], columns: &[GetColumn], output: Output) -> String {
    use GetColumn::{Name, Property, Source, Value};
    let columns = if columns.is_empty() { &[Name, Property, Value, Source] } else { columns };
    let header = |column: &GetColumn| match column {
        Name => "NAME",
        Property => "PROPERTY",
        Value => "VALUE",
        Source => "SOURCE",
    };
    let mut table = Table::new(&columns.iter().map(header).collect::<Vec<_>>());
    for Line { dataset, property } in lines {
        let PropertyValue { name, value, source } = property;
        let cell = |column: &GetColumn| match column {
            Name => dataset.clone(),
            Property => name.clone(),
            Value if is_users(name) => value.clone(),
            // A number is a size: no other property has another kind of number.
            Value => value.parse().map_or_else(|_| value.clone(), |bytes| output.size(bytes)),
            Source => source.clone(),
        };
        let cells = columns.iter().map(cell).collect();
        let is_unsafe = name == "sync" && value.starts_with("disabled:");
        if is_unsafe { table.red_row(cells) } else { table.row(cells) }
    }
    output.table(&table)
}
