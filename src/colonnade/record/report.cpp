// See report.h.
#include "colonnade/record/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "colonnade/base/files.h"
#include "colonnade/record/report_charts.h"
#include "colonnade/record/report_page.h"
#include "colonnade/record/step_line.h"

namespace colonnade::record {
namespace {

using Steps = std::vector<StepRecord>;
using Evals = std::vector<EvalRecord>;
using Sessions = std::vector<RunSummary>;

Series over_steps(std::string name, int color, const Steps& steps,
                  const std::function<double(const StepRecord&)>& value) {
  Series series{std::move(name), color, {}};
  for (const auto& r : steps) series.points.emplace_back(static_cast<double>(r.iteration), value(r));
  return series;
}

/// Names of the evaluated sets, each once: validation sets, then the test.
std::vector<std::string> sets_of(const Evals& evals) {
  std::vector<std::string> sets;
  for (const auto& r : evals)
    if (std::ranges::find(sets, r.set) == sets.end()) sets.push_back(r.set);
  std::stable_partition(sets.begin(), sets.end(), [](const std::string& set) { return set != "test"; });
  return sets;
}

/// One line for each validation set.
std::vector<Series> over_evals(const Evals& evals,
                               const std::function<std::optional<double>(const EvalRecord&)>& value) {
  constexpr int kColors = 5;  // in addition to that of training
  std::vector<Series> lines;
  for (const std::string& set : sets_of(evals)) {
    if (set == "test") continue;
    Series series{set, 2 + static_cast<int>(lines.size()) % kColors, {}};
    for (const auto& r : evals)
      if (const auto y = value(r); r.set == set && y)
        series.points.emplace_back(static_cast<double>(r.iteration), *y);
    lines.push_back(std::move(series));
  }
  return lines;
}

/// The training line followed by those of the validation.
std::vector<Series> with_training(Series training, std::vector<Series> validation) {
  validation.insert(validation.begin(), std::move(training));
  return validation;
}

/// BERT's sentence-order losses in training and validation; without points where there are none.
std::vector<Series> sentence_order_losses(const Steps& steps, const Evals& evals) {
  Series training{"training", 1, {}};
  for (const auto& r : steps)
    for (const auto& [name, value] : r.extra_losses)
      if (name == "sop_loss") training.points.emplace_back(static_cast<double>(r.iteration), value);
  return with_training(std::move(training), over_evals(evals, [](const auto& r) { return r.sop_loss; }));
}

std::string charts(const Sessions& sessions, const Steps& steps, const Evals& evals) {
  std::vector<double> resumed;
  for (std::size_t i = 1; i < sessions.size(); ++i)
    resumed.push_back(static_cast<double>(sessions[i].first_step) - 0.5);
  std::string html = "<div class=\"charts\">\n";
  const auto draw = [&](Chart chart) {
    chart.marks = resumed;
    html += draw_chart(chart);
  };
  draw({.title = "Loss",
        .series = with_training(over_steps("training", 1, steps, [](const auto& r) { return r.lm_loss; }),
                                over_evals(evals, [](const auto& r) { return r.loss; }))});
  if (auto order = sentence_order_losses(steps, evals);
      std::ranges::any_of(order, [](const Series& line) { return !line.points.empty(); }))
    draw({.title = "Sentence-order loss", .series = std::move(order)});
  draw({.title = "Tokens per second",
        .series = {over_steps("tokens/s", 1, steps, [](const auto& r) { return r.tokens_per_second; })},
        .from_zero = true});
  draw({.title = "Peak memory (max over ranks), GB",
        .series = {over_steps("GB", 1, steps,
                              [](const auto& r) { return static_cast<double>(r.peak_memory_bytes) / 1e9; })},
        .from_zero = true});
  draw({.title = "Gradient norm before clipping",
        .series = {over_steps("norm", 1, steps, [](const auto& r) { return r.grad_norm; })},
        .from_zero = true});
  draw({.title = "Learning rate",
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
                     tile("tokens trained", short_number(static_cast<double>(last.consumed_tokens))) +
                     tile("training loss", fmt::format("{:.4f}", last.lm_loss));
  for (const std::string& set : sets_of(evals)) {
    const auto found =
        std::find_if(evals.rbegin(), evals.rend(), [&](const auto& r) { return r.set == set; });
    html += tile(fmt::format("{} loss", set), fmt::format("{:.4f}", found->loss)) +
            tile(fmt::format("{} perplexity", set), fmt::format("{:.4g}", found->perplexity()));
    if (found->sop_loss)
      html += tile(fmt::format("{} sentence-order loss", set), fmt::format("{:.4f}", *found->sop_loss));
  }
  html += tile("tokens per second", short_number(last.tokens_per_second));
  if (last.mfu) html += tile("MFU", fmt::format("{:.1f}%", *last.mfu * 100));
  html +=
      tile(fmt::format("peak memory, rank {}", last.peak_memory_rank), short_bytes(last.peak_memory_bytes));
  const auto skipped = std::count_if(steps.begin(), steps.end(), [](const auto& r) { return r.skipped; });
  if (skipped > 0) html += tile("steps skipped", fmt::format("{}", skipped));
  return html + "</div>\n";
}

/// A phase's share of a session's time.
struct PhaseShare {
  std::string_view name;
  std::string color;
  double seconds, share;
};

/// Shares of all phases; the remaining time is "other".
std::vector<PhaseShare> shares(const RunSummary& session) {
  std::vector<PhaseShare> all;
  const auto add = [&](std::string_view name, std::string color, double seconds) {
    all.push_back({name, std::move(color), seconds, std::max(seconds, 0.0) / session.wall_seconds});
  };
  for (std::size_t i = 0; i < kPhases; ++i)
    add(phase_name(static_cast<Phase>(i)), fmt::format("s{}", i + 1), session.times.seconds[i]);
  add("other", "rest", session.wall_seconds - session.times.total());
  return all;
}

/// The phases as one stacked bar.
std::string time_bar(const RunSummary& session) {
  std::string parts;
  for (const PhaseShare& s : shares(session))
    parts += fmt::format("<i style=\"flex:{:.5f};background:var(--{})\" title=\"{} {:.1f}%\"></i>", s.share,
                         s.color, s.name, s.share * 100);
  return "<div class=\"split\">" + parts + "</div>";
}

std::string time_split(const RunSummary& session) {
  if (session.wall_seconds <= 0) return "";
  std::string rows;
  for (const PhaseShare& s : shares(session))
    rows += fmt::format(
        "<tr><td><span class=\"legend\"><i style=\"background:var(--{})\"></i></span>{}</td><td "
        "class=\"n\">{:.1f} s</td><td class=\"n\">{:.1f}%</td></tr>",
        s.color, s.name, s.seconds, s.share * 100);
  return fmt::format(
      "<h2>Time by phase</h2><div class=\"card\">{}<table><tr><th>phase (rank 0)</th>"
      "<th class=\"n\">time</th><th class=\"n\">share</th></tr>{}</table></div>\n",
      time_bar(session), rows);
}

std::string layout(const std::vector<RankSummary>& ranks) {
  if (ranks.empty()) return "";
  std::string rows;
  for (const auto& r : ranks)
    rows += fmt::format("<tr><td class=\"n\">{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td></tr>\n",
                        r.rank, escape_html(r.coordinates), escape_html(r.blocks),
                        short_number(static_cast<double>(r.parameters)));
  return fmt::format(
      "<h2>Layout</h2><div class=\"card wide\"><table><tr><th class=\"n\">rank</th><th>coordinates</th>"
      "<th>blocks</th><th class=\"n\">parameters</th></tr>\n{}</table></div>\n",
      rows);
}

std::string bytes_or_dash(std::uint64_t bytes) { return bytes > 0 ? short_bytes(bytes) : "-"; }

/// Two rows for each rank, measured and planned, with a column for each phase and a bar for the largest.
std::string memory(const std::vector<RankSummary>& ranks) {
  if (ranks.empty()) return "";
  std::string titles;
  for (std::size_t i = 0; i < kMemoryPhases; ++i)
    titles += fmt::format("<th class=\"n\">{}</th>", memory_phase_name(static_cast<MemoryPhase>(i)));
  std::uint64_t largest = 1;
  for (const auto& r : ranks) largest = std::max({largest, r.measured.largest(), r.planned.largest()});
  std::string rows;
  const auto add = [&](const std::string& rank, std::string_view what, const MemoryPeaks& peaks) {
    rows += fmt::format("<tr><td class=\"n\">{}</td><td>{}</td>", rank, what);
    for (const std::uint64_t bytes : peaks.bytes)
      rows += fmt::format("<td class=\"n\">{}</td>", bytes_or_dash(bytes));
    rows += fmt::format("<td class=\"bar {}\"><i style=\"width:{:.1f}%\"></i></td></tr>\n", what,
                        100.0 * static_cast<double>(peaks.largest()) / static_cast<double>(largest));
  };
  for (const auto& r : ranks) {
    add(fmt::format("{}", r.rank), "measured", r.measured);
    add("", "planned", r.planned);
  }
  return fmt::format(
      "<h2>Peak memory by rank and phase</h2><div class=\"card wide\"><table><tr><th class=\"n\">rank"
      "</th><th></th>{}<th></th></tr>\n{}</table></div>\n",
      titles, rows);
}

std::string facts(const RunSummary& summary) {
  std::string html;
  for (const auto& [name, value] : summary.facts)
    html += fmt::format("<span>{}: {}</span> ", escape_html(name), escape_html(value));
  return html.empty() ? "" : "<p class=\"facts\">" + html + "</p>\n";
}

std::string layout_of(const RunSummary& session) {
  for (const auto& [name, value] : session.facts)
    if (name == "layout") return value;
  return session.title;
}

/// "steps 1 to 120", with the first step that a later session repeats.
std::string steps_of(const Sessions& sessions, std::size_t i) {
  const RunSummary& session = sessions[i];
  if (session.last_step < session.first_step) return "no steps";
  std::string text = fmt::format("steps {} to {}", session.first_step, session.last_step);
  if (i + 1 < sessions.size() && sessions[i + 1].first_step <= session.last_step)
    text += fmt::format(", repeated later from step {}", sessions[i + 1].first_step);
  return text;
}

/// Table of sessions of a resumed run; "" for a single one.
std::string overview(const Sessions& sessions) {
  if (sessions.size() < 2) return "";
  std::string rows;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    const RunSummary& s = sessions[i];
    rows += fmt::format(
        "<tr><td class=\"n\">{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td>"
        "<td class=\"n\">{:.1f} s</td><td class=\"bar\">{}</td></tr>\n",
        i + 1, escape_html(s.began), steps_of(sessions, i), escape_html(layout_of(s)), s.ranks.size(),
        s.wall_seconds, s.wall_seconds > 0 ? time_bar(s) : "");
  }
  return fmt::format(
      "<h2>Sessions</h2><div class=\"card wide\"><table><tr><th class=\"n\">session</th><th>started</th>"
      "<th>steps</th><th>layout</th><th class=\"n\">ranks</th><th class=\"n\">time</th><th></th></tr>\n{}"
      "</table></div>\n",
      rows);
}

/// Time, pipeline, layout and memory of one session.
std::string session_details(const RunSummary& session) {
  std::string html = time_split(session);
  if (!session.pipeline_svg.empty())
    html += "<h2>Pipeline of one step</h2><div class=\"card wide\">" + session.pipeline_svg + "</div>\n";
  return html + layout(session.ranks) + memory(session.ranks);
}

/// Details of all sessions. Those of a resumed run can be collapsed; the last three are open at first.
std::string all_details(const Sessions& sessions) {
  if (sessions.size() == 1) return session_details(sessions[0]);
  std::string html;
  for (std::size_t i = 0; i < sessions.size(); ++i)
    html +=
        fmt::format("<details class=\"session\"{}><summary>Session {}, {}: {}</summary>\n{}{}</details>\n",
                    i + 3 >= sessions.size() ? " open" : "", i + 1, steps_of(sessions, i),
                    escape_html(layout_of(sessions[i])), facts(sessions[i]), session_details(sessions[i]));
  return html;
}

}  // namespace

std::string make_report(const Sessions& sessions, const Steps& steps, const Evals& evals) {
  const RunSummary& last = sessions.back();
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{}</title>\n<style>",
      escape_html(last.title));
  page += kReportStyle;
  page += fmt::format("</style></head>\n<body><main>\n<h1>{}</h1>\n", escape_html(last.title));
  if (sessions.size() == 1) page += facts(last);
  page += tiles(steps, evals) + charts(sessions, steps, evals);
  page += overview(sessions) + all_details(sessions);
  if (!last.settings.empty())
    page += fmt::format(
        "<h2>Settings</h2><details class=\"card\"><summary>config.yaml</summary><pre>{}</pre></details>\n",
        escape_html(last.settings));
  page += "</main>\n<script>";
  page += kReportScript;
  return page + "</script></body></html>\n";
}

void write_report(const RunFolder& folder, const Sessions& sessions) {
  write_file_atomically(folder.report(),
                        make_report(sessions, read_steps(folder.metrics()), read_evals(folder.validation())));
}

}  // namespace colonnade::record
