//! `aquifer list` and `aquifer get`.

use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum};

/// Arguments of `list`: what to list, and how.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Also those below.
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Those below, down to this depth: 1 is those right below.
    #[arg(short = 'd', value_name = "DEPTH")]
    pub depth: Option<usize>,
    /// Kind of entries to list.
    #[arg(short = 't', value_name = "KIND")]
    pub kind: Option<ListKind>,
    /// Columns, with commas between them: name, type, used, available, referenced, creation,
    /// mountpoint, origin, holds, or any property.
    #[arg(short = 'o', value_name = "COLUMN,...", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// In which order.
    #[command(flatten)]
    pub sort: Sort,
    /// The dataset; without one, all.
    pub dataset: Option<String>,
}

/// Kinds of entries that `list` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListKind {
    /// Datasets, as without -t
    #[value(alias = "fs")]
    Filesystem,
    /// Snapshots
    #[value(alias = "snap")]
    Snapshot,
    /// Bookmarks
    Bookmark,
    /// All of them
    All,
    /// Received parts of streams that may go on
    Receiving,
}

/// A column by which is sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The column.
    pub column: String,
    /// From the largest down.
    pub falls: bool,
}

/// The columns by which is sorted, in the order of the command line.
#[derive(Clone, Debug, Default)]
pub struct Sort(pub Vec<SortKey>);

/// The options of [`Sort`], as clap knows them. Their order among each other counts.
#[derive(Debug, Args)]
struct SortArgs {
    /// Sort by a column; several times for several.
    #[arg(short = 's', value_name = "COLUMN")]
    rising: Vec<String>,
    /// Sort by a column, from the largest down.
    #[arg(short = 'S', value_name = "COLUMN")]
    falling: Vec<String>,
}

impl FromArgMatches for Sort {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut keys = Vec::new();
        for (id, falls) in [("rising", false), ("falling", true)] {
            let places = matches.indices_of(id).into_iter().flatten();
            let columns = matches.get_many::<String>(id).into_iter().flatten();
            let key = |column: &String| SortKey { column: column.clone(), falls };
            keys.extend(places.zip(columns.map(key)));
        }
        keys.sort_by_key(|(place, _)| *place);
        Ok(Sort(keys.into_iter().map(|(_, key)| key).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Sort::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Sort {
    fn augment_args(command: Command) -> Command {
        SortArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        SortArgs::augment_args_for_update(command)
    }
}

/// Arguments of `get`: what to show.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Also of all datasets below.
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Only values from there: local, default, inherited, none; with commas between them.
    #[arg(short = 's', value_name = "SOURCE,...", value_delimiter = ',')]
    pub sources: Vec<Source>,
    /// Columns, with commas between them. [default: all]
    #[arg(short = 'o', value_name = "COLUMN,...", value_delimiter = ',')]
    pub columns: Vec<GetColumn>,
    /// `all`, or properties with commas between them.
    pub properties: String,
    /// The datasets; without any, all.
    pub datasets: Vec<String>,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// Set on the dataset
    Local,
    /// Of no dataset above
    Default,
    /// From a dataset above
    Inherited,
    /// It cannot be set
    None,
}

/// Columns of `get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GetColumn {
    /// The dataset
    Name,
    /// The property
    Property,
    /// The value in force
    Value,
    /// Where it comes from
    Source,
}
