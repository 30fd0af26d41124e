// Pictures of the report as text: line charts in SVG with hover, coloured by the page's style sheet.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace colonnade::record {

/// One line of a chart. Points are (x, y) in ascending x; those whose y is no number are left out.
struct Series {
  std::string name;
  int color = 1;  ///< slot of the palette, 1 to 6: the CSS variable --s<color>
  std::vector<std::pair<double, double>> points;
};

struct Chart {
  std::string title;
  std::string x_name = "step";
  std::vector<Series> series;
  bool from_zero = false;     ///< the y axis begins at 0: for sizes and speeds
  std::vector<double> marks;  ///< x where the run was resumed: dashed vertical lines
};

/// A <figure> with the chart; where there is nothing to draw, one that says so. At most 600 points a
/// line are drawn: of longer ones each column keeps its lowest and highest.
std::string draw_chart(const Chart& chart);

/// At most about `count` round numbers from `low` to `high`, both ends inside.
std::vector<double> round_ticks(double low, double high, int count);

/// `points` with at most 2 * columns left: the lowest and highest of each column, and the last.
std::vector<std::pair<double, double>> thin_out(const std::vector<std::pair<double, double>>& points,
                                                int columns);

/// & < > " as entities.
std::string escape_html(std::string_view text);

}  // namespace colonnade::record
