// See report.h.
#include "colonnade/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "colonnade/base/files.h"
#include "colonnade/train/report_charts.h"
#include "colonnade/train/report_page.h"
#include "colonnade/train/step_line.h"

namespace colonnade::train {
namespace {

using Steps = std::vector<StepRecord>;
using Evals = std::vector<EvalRecord>;

Series over_steps(std::string name, int color, const Steps& steps,
                  const std::function<double(const StepRecord&)>& value) {
  Series series{std::move(name), color, {}};
  for (const auto& r : steps) series.points.emplace_back(static_cast<double>(r.iteration), value(r));
  return series;
}

Series over_evals(const Evals& evals) {
  Series series{"validation", 2, {}};
  for (const auto& r : evals)
    if (r.set == "validation") series.points.emplace_back(static_cast<double>(r.iteration), r.loss);
  return series;
}

std::string charts(const Steps& steps, const Evals& evals) {
  std::string html = "<div class=\"charts\">\n";
  html += draw_chart({.title = "Loss",
                      .series = {over_steps("training", 1, steps, [](const auto& r) { return r.lm_loss; }),
                                 over_evals(evals)}});
  html += draw_chart(
      {.title = "Tokens per second",
       .series = {over_steps("tokens/s", 1, steps, [](const auto& r) { return r.tokens_per_second; })},
       .from_zero = true});
  html += draw_chart(
      {.title = "Peak memory of the fullest rank, GB",
       .series = {over_steps("GB", 1, steps,
                             [](const auto& r) { return static_cast<double>(r.peak_memory_bytes) / 1e9; })},
       .from_zero = true});
  html += draw_chart({.title = "Gradient norm before clipping",
                      .series = {over_steps("norm", 1, steps, [](const auto& r) { return r.grad_norm; })},
                      .from_zero = true});
  html += draw_chart({.title = "Learning rate",
                      .series = {over_steps("rate", 1, steps, [](const auto& r) { return r.learning_rate; })},
                      .from_zero = true});
  return html + "</div>\n";
}

std::string tile(std::string_view name, const std::string& value) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", escape_html(value),
                     escape_html(name));
}

std::string tiles(const Steps& steps, const Evals& evals) {
  if (steps.empty()) return "";
  const StepRecord& last = steps.back();
  std::string html = "<div class=\"tiles\">\n" + tile("steps", fmt::format("{}", last.iteration)) +
                     tile("tokens trained on", short_number(static_cast<double>(last.consumed_tokens))) +
                     tile("training loss", fmt::format("{:.4f}", last.lm_loss));
  if (!evals.empty())
    html += tile(evals.back().set + " loss", fmt::format("{:.4f}", evals.back().loss)) +
            tile(evals.back().set + " perplexity", fmt::format("{:.4g}", evals.back().perplexity()));
  html += tile("tokens per second", short_number(last.tokens_per_second));
  if (last.mfu) html += tile("of the peak FLOP/s", fmt::format("{:.1f}%", *last.mfu * 100));
  html +=
      tile(fmt::format("peak memory, rank {}", last.peak_memory_rank), short_bytes(last.peak_memory_bytes));
  const auto skipped = std::count_if(steps.begin(), steps.end(), [](const auto& r) { return r.skipped; });
  if (skipped > 0) html += tile("steps skipped", fmt::format("{}", skipped));
  return html + "</div>\n";
}

/// One bar of all phases and a table of them; what no phase claims is "other".
std::string time_split(const RunSummary& summary) {
  if (summary.wall_seconds <= 0) return "";
  std::string bar, rows;
  const auto add = [&](std::string_view name, const std::string& color, double seconds) {
    const double share = std::max(seconds, 0.0) / summary.wall_seconds;
    bar += fmt::format("<i style=\"flex:{:.5f};background:var(--{})\" title=\"{} {:.1f}%\"></i>", share,
                       color, name, share * 100);
    rows += fmt::format(
        "<tr><td><span class=\"legend\"><i style=\"background:var(--{})\"></i></span>{}</td><td "
        "class=\"n\">{:.1f} s</td><td class=\"n\">{:.1f}%</td></tr>",
        color, name, seconds, share * 100);
  };
  for (std::size_t i = 0; i < kPhases; ++i)
    add(phase_name(static_cast<Phase>(i)), fmt::format("s{}", i + 1), summary.times.seconds[i]);
  add("other", "rest", summary.wall_seconds - summary.times.total());
  return fmt::format(
      "<h2>Where the time went</h2><div class=\"card\"><div class=\"split\">{}</div><table><tr><th>phase "
      "(rank 0)</th>"
      "<th class=\"n\">time</th><th class=\"n\">share</th></tr>{}</table></div>\n",
      bar, rows);
}

std::string layout(const std::vector<RankSummary>& ranks) {
  if (ranks.empty()) return "";
  std::string rows;
  for (const auto& r : ranks)
    rows += fmt::format("<tr><td class=\"n\">{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td></tr>\n",
                        r.rank, escape_html(r.place), escape_html(r.owns),
                        short_number(static_cast<double>(r.parameters)));
  return fmt::format(
      "<h2>Layout</h2><div class=\"card wide\"><table><tr><th class=\"n\">rank</th><th>place</th>"
      "<th>owns</th><th class=\"n\">parameters</th></tr>\n{}</table></div>\n",
      rows);
}

std::string bytes_or_dash(std::uint64_t bytes) { return bytes > 0 ? short_bytes(bytes) : "-"; }

/// Two lines for each rank, measured and planned, a column for each phase, and a bar of the largest.
std::string memory(const std::vector<RankSummary>& ranks) {
  if (ranks.empty()) return "";
  std::string titles;
  for (std::size_t i = 0; i < kMemoryPhases; ++i)
    titles += fmt::format("<th class=\"n\">{}</th>", memory_phase_name(static_cast<MemoryPhase>(i)));
  std::uint64_t most = 1;
  for (const auto& r : ranks) most = std::max({most, r.measured.most(), r.planned.most()});
  std::string rows;
  const auto add = [&](const std::string& rank, std::string_view what, const MemoryPeaks& peaks) {
    rows += fmt::format("<tr><td class=\"n\">{}</td><td>{}</td>", rank, what);
    for (const std::uint64_t bytes : peaks.bytes)
      rows += fmt::format("<td class=\"n\">{}</td>", bytes_or_dash(bytes));
    rows += fmt::format("<td class=\"bar {}\"><i style=\"width:{:.1f}%\"></i></td></tr>\n", what,
                        100.0 * static_cast<double>(peaks.most()) / static_cast<double>(most));
  };
  for (const auto& r : ranks) {
    add(fmt::format("{}", r.rank), "measured", r.measured);
    add("", "planned", r.planned);
  }
  return fmt::format(
      "<h2>Peak memory of each rank and phase</h2><div class=\"card wide\"><table><tr><th class=\"n\">rank"
      "</th><th></th>{}<th></th></tr>\n{}</table></div>\n",
      titles, rows);
}

std::string facts(const RunSummary& summary) {
  std::string html;
  for (const auto& [name, value] : summary.facts)
    html += fmt::format("<span>{}: {}</span> ", escape_html(name), escape_html(value));
  return html.empty() ? "" : "<p class=\"facts\">" + html + "</p>\n";
}

}  // namespace

std::string make_report(const RunSummary& summary, const Steps& steps, const Evals& evals) {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{}</title>\n<style>",
      escape_html(summary.title));
  page += kReportStyle;
  page += fmt::format("</style></head>\n<body><main>\n<h1>{}</h1>\n", escape_html(summary.title));
  page += facts(summary) + tiles(steps, evals) + charts(steps, evals) + time_split(summary);
  if (!summary.pipeline_svg.empty())
    page += "<h2>Pipeline of one step</h2><div class=\"card wide\">" + summary.pipeline_svg + "</div>\n";
  page += layout(summary.ranks) + memory(summary.ranks);
  if (!summary.settings.empty())
    page += fmt::format(
        "<h2>Settings</h2><details class=\"card\"><summary>config.yaml</summary><pre>{}</pre></details>\n",
        escape_html(summary.settings));
  page += "</main>\n<script>";
  page += kReportScript;
  return page + "</script></body></html>\n";
}

void write_report(const RunFolder& folder, const RunSummary& summary) {
  write_file_atomically(folder.report(),
                        make_report(summary, read_steps(folder.metrics()), read_evals(folder.validation())));
}

}  // namespace colonnade::train
