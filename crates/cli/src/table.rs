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

    /// The table as text for people, with `red` applied to rows that stand out.
    pub fn coloured(&self, red: impl Fn(&str) -> String) -> String {
        let text = self.text(false);
        let line = |(at, line): (usize, &str)| match at.checked_sub(1) {
            Some(row) if self.red.contains(&row) => red(line),
            _ => line.to_string(),
        };
        text.split_inclusive('\n').enumerate().map(line).collect()
    }

    /// The table as text.
    pub fn text(&self, script: bool) -> String {
        let mut text = String::new();
        if script {
            for row in &self.rows {
                text.push_str(&row.join("\t"));
                text.push('\n');
            }
            return text;
        }
        for row in std::iter::once(&self.header).chain(&self.rows) {
            let cells = row.iter().enumerate().map(|(at, cell)| self.padded(at, cell));
            let line: Vec<String> = cells.collect();
            text.push_str(line.join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    fn padded(&self, at: usize, cell: &str) -> String {
        let cells = self.rows.iter().filter_map(|row| row.get(at));
        let widths = cells.map(|cell| cell.chars().count());
        let width = widths.chain(self.header.get(at).map(|name| name.len())).max().unwrap_or(0);
        match self.right.get(at) {
            Some(true) => format!("{cell:>width$}"),
            _ => format!("{cell:<width$}"),
        }
    }
}

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
        let shown = table.coloured(|line| format!("<{}>\n", line.trim_end()));
        assert_eq!(shown, "NAME       USED\ntank      1.50G\n<tank/vms     0B>\n");
    }
}
