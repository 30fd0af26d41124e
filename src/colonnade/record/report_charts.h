// Charts of the report: line charts in SVG with hover, colored by the page's style sheet.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace colonnade::record {

/// One line of a chart. Points are (x, y) in ascending x; those with a non-finite y are left out.
struct Series {
  std::string name;
  int color = 1;  ///< slot of the palette, 1 to 6: the CSS variable --s<color>
  std::vector<std::pair<double, double>> points;
};

struct Chart {
  std::string title;
  std::string x_name = "step";
  std::vector<Series> series;
  bool from_zero = false;     ///< the y axis starts at 0: for sizes and speeds
  std::vector<double> marks;  ///< x positions of resumes: dashed vertical lines
};

/// A <figure> with the chart, or with a note when there is nothing to draw. At most 600 points per line are
/// drawn: of longer lines each column keeps its lowest and highest.
std::string draw_chart(const Chart& chart);

/// At most about `count` round numbers from `low` to `high`, inclusive.
std::vector<double> round_ticks(double low, double high, int count);

/// At most 2 * columns of `points`: the lowest and highest of each column, and the last.
std::vector<std::pair<double, double>> thin_out(const std::vector<std::pair<double, double>>& points,
                                                int columns);

/// Escapes & < > " as entities.
std::string escape_html(std::string_view text);

}  // namespace colonnade::record
