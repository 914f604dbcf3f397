//! Tables: for people with aligned columns, for scripts with tabs.

use aquifer_api::shown::shown;

/// Rows under a header.
#[derive(Debug, Default)]
pub(crate) struct Table {
    header: Vec<String>,
    /// Whether the column's cells are right-aligned: numbers.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
    /// Numbers of rows that must stand out.
    red: Vec<usize>,
}

impl Table {
    /// A table of these columns; a `>` before a name means a column of numbers.
    pub fn new(columns: &[impl AsRef<str>]) -> Table {
        let names = || columns.iter().map(AsRef::as_ref);
        let right = names().map(|name: &str| name.starts_with('>')).collect();
        let header = names().map(|name| name.trim_start_matches('>').to_string()).collect();
        Table { header, right, rows: Vec::new(), red: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        // Whatever its content, a row is a line. A tab before a cell indents the row.
        let one = |cell: &String| match cell.strip_prefix('\t') {
            Some(rest) => format!("\t{}", shown(rest)),
            None => shown(cell),
        };
        self.rows.push(cells.iter().map(one).collect());
    }

    /// Adds a row that must stand out.
    pub fn red_row(&mut self, cells: Vec<String>) {
        self.red.push(self.rows.len());
        self.row(cells);
    }

    /// The table as text for people on a screen of `width` columns, if it is one, with `red`
    /// applied to rows that stand out.
    pub fn coloured(&self, width: Option<usize>, red: impl Fn(&str) -> String) -> String {
        let widths = self.widths();
        let mut text = self.line(&self.header, &widths, width);
        for (at, row) in self.rows.iter().enumerate() {
            let line = self.line(row, &widths, width);
            text.push_str(&if self.red.contains(&at) { red(&line) } else { line });
        }
        text
    }

    /// The table as text.
    pub fn text(&self, script: bool) -> String {
        if !script {
            return self.coloured(None, str::to_string);
        }
        self.rows.iter().map(|row| row.join("\t") + "\n").collect()
    }

    /// The widths of all columns.
    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.header.iter().map(|name| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        widths
    }

    /// A row as a line; on a screen that is too narrow for it, as several: what the last column
    /// does not hold goes on below it.
    fn line(&self, row: &[String], widths: &[usize], screen: Option<usize>) -> String {
        let cells = row.iter().zip(widths).enumerate().map(|(at, (cell, &width))| {
            match self.right.get(at) {
                Some(true) => format!("{cell:>width$}"),
                _ => format!("{cell:<width$}"),
            }
        });
        let mut cells: Vec<String> = cells.collect();
        let indent = widths.iter().rev().skip(1).map(|width| width + 2).sum::<usize>();
        let room = screen.and_then(|screen| screen.checked_sub(indent));
        let is_text = row.len() == self.right.len() && self.right.last() == Some(&false);
        if let (Some(last), Some(room)) = (cells.last_mut(), room.filter(|room| *room >= ROOM_MIN))
            && is_text
        {
            *last = folded(last.trim_end(), room).join(&format!("\n{:indent$}", ""));
        }
        cells.join("  ").trim_end().to_string() + "\n"
    }
}

/// Breaks a text between words into lines of at most `room` characters; longer words stay whole.
fn folded(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// The last column is not folded into less: its words would stand below each other.
const ROOM_MIN: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", ">USED"]);
        table.row(vec!["tank".into(), "1.50G".into()]);
        table.row(vec!["tank/vms".into(), "0B".into()]);
        assert_eq!(table.text(false), "NAME       USED\ntank      1.50G\ntank/vms     0B\n");
        assert_eq!(table.text(true), "tank\t1.50G\ntank/vms\t0B\n");
    }

    /// Names of files and clients may hold anything: a cell is a part of its line.
    #[test]
    fn a_cell_begins_no_line_and_moves_no_cursor() {
        let mut table = Table::new(&["NAME", "OWNER"]);
        table.row(vec!["a\nroot  0".into(), "b\x1b[2J\tc".into()]);
        assert_eq!(table.text(true), "a?root  0\tb?[2J?c\n");
        assert_eq!(table.text(false).lines().count(), 2);
    }

    #[test]
    fn a_row_that_must_not_be_overlooked_lines_up_too() {
        let mut table = Table::new(&["NAME", ">USED"]);
        table.row(vec!["tank".into(), "1.50G".into()]);
        table.red_row(vec!["tank/vms".into(), "0B".into()]);
        let shown = table.coloured(None, |line| format!("<{}>\n", line.trim_end()));
        assert_eq!(shown, "NAME       USED\ntank      1.50G\n<tank/vms     0B>\n");
    }

    #[test]
    fn the_last_column_goes_on_below_itself_on_a_screen_that_is_too_narrow() {
        let mut table = Table::new(&[">N", "WHAT"]);
        table.row(vec!["1".into(), "a disk is gone and the pool runs on the other".into()]);
        table.row(vec!["22".into(), "short".into()]);
        let plain = |width| table.coloured(width, str::to_string);
        let expected =
            " N  WHAT\n 1  a disk is gone and the pool\n    runs on the other\n22  short\n";
        assert_eq!(plain(Some(32)), expected);
        assert_eq!(plain(None), plain(Some(80)));
        assert_eq!(plain(Some(20)), plain(None), "too narrow to fold");
        let numbers = Table::new(&["A", ">B"]);
        assert_eq!(numbers.coloured(Some(1), str::to_string), "A  B\n");
    }

    /// 10,000 snapshots are no pause.
    #[test]
    fn many_rows_take_time_by_their_number() {
        let mut table = Table::new(&["NAME", ">USED"]);
        (0..100_000).for_each(|row| table.row(vec![format!("tank/vms@{row}"), "0B".into()]));
        let begun = std::time::Instant::now();
        assert_eq!(table.text(false).lines().count(), 100_001);
        assert!(begun.elapsed().as_secs() < 10);
    }
}
