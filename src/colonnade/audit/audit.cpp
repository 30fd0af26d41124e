// See audit.h.
#include "colonnade/audit/audit.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>

#include "colonnade/audit/ledger.h"
#include "colonnade/base/error.h"
#include "colonnade/config/parse.h"
#include "colonnade/data/dataset_usage.h"
#include "colonnade/data/sample_description.h"
#include "colonnade/job/prepare.h"
#include "colonnade/job/resume_policy.h"
#include "colonnade/record/metrics.h"

namespace colonnade::audit {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

/// Indices [begin, end).
struct IndexRange {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return std::max<std::int64_t>(end - begin, 0); }
  [[nodiscard]] bool contains(std::int64_t n) const { return begin <= n && n < end; }
};

json to_json(const IndexRange& n) { return n.size() == 0 ? json() : json{n.begin, n.end - 1}; }

/// One start of the program, and its part of the work in the weights.
struct Session {
  fs::path run;
  LedgerLine line;
  IndexRange steps, samples;              ///< in the weights
  IndexRange lost;                        ///< computed later and not in the weights
  std::size_t first_line = 0, lines = 0;  ///< its recorded steps in History::steps
};

/// One step whose update is in the weights.
struct AuditedStep {
  std::int64_t number = 0;
  IndexRange samples;
  bool skipped = false;
};

/// All sessions that made the weights, in order, including those in the folders of other runs that this one
/// resumed from, and the sessions of this run whose work is lost.
class History {
 public:
  explicit History(const fs::path& run) : own_(*open(run)) {
    const auto last = record::last_step(record::RunFolder{run}.metrics());
    const record::ResumePoint start = own_.lines.back().loaded;
    end_ = last && last->iteration > start.step ? record::ResumePoint{last->iteration, last->consumed_samples}
                                                : start;
    std::size_t listed = 0;  // lines of this run
    for (const Retained& retained : find_retained()) {
      for (; retained.ledger == &own_ && listed < retained.line; ++listed)
        add(own_, listed, own_.lines[listed].loaded);
      add(*retained.ledger, retained.line, retained.end);
      if (retained.ledger == &own_) ++listed;
    }
    for (; listed < own_.lines.size(); ++listed) add(own_, listed, own_.lines[listed].loaded);
    for (std::size_t i = 0; i < sessions_.size(); ++i) read_steps_of(sessions_[i], last_recorded(i));
  }
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  [[nodiscard]] const std::vector<Session>& sessions() const { return sessions_; }
  [[nodiscard]] const std::vector<AuditedStep>& steps() const { return steps_; }
  [[nodiscard]] std::span<const AuditedStep> steps_of(const Session& session) const {
    return std::span(steps_).subspan(session.first_line, session.lines);
  }
  /// Progress before the first known session, and the folder of that checkpoint.
  [[nodiscard]] record::ResumePoint begin() const { return begin_; }
  [[nodiscard]] const std::string& from() const { return from_; }
  [[nodiscard]] record::ResumePoint end() const { return end_; }

 private:
  struct Ledger {
    fs::path run;
    std::vector<LedgerLine> lines;
    std::size_t unvisited = 0;  ///< number of lines not visited yet
  };
  /// A session whose work is in the weights, up to `end`.
  struct Retained {
    Ledger* ledger = nullptr;
    std::size_t line = 0;
    record::ResumePoint end;
  };

  /// Throws as read_ledger.
  Ledger* open(const fs::path& run) {
    const auto [at, is_new] = ledgers_.try_emplace(fs::weakly_canonical(run));
    if (is_new) {
      at->second = {run, read_ledger({run}), 0};
      at->second.unvisited = at->second.lines.size();
    }
    return &at->second;
  }

  /// The ledger of the run that `line` resumed from, up to that time; null when it does not exist.
  Ledger* open_parent(const LedgerLine& line) {
    const fs::path run = fs::path(line.from).parent_path().parent_path();  // RUN/checkpoints/step_N
    if (!fs::exists(record::RunFolder{run}.ledger())) return nullptr;
    Ledger* ledger = open(run);
    while (ledger->unvisited > 0 && ledger->lines[ledger->unvisited - 1].began_s > line.began_s)
      --ledger->unvisited;
    return ledger;
  }

  /// Walks backwards from the end: each session leads to the one whose checkpoint it started from.
  std::vector<Retained> find_retained() {
    std::vector<Retained> retained;
    begin_ = end_;
    for (Ledger* ledger = &own_; ledger != nullptr && ledger->unvisited > 0 && begin_.step > 0;) {
      const LedgerLine& line = ledger->lines[--ledger->unvisited];
      const bool is_empty = line.loaded.step == begin_.step && line.own;
      if (line.loaded.step > begin_.step || (is_empty && !line.saved)) continue;
      if (!from_.empty() && line.loaded.step < begin_.step && started_after(line, from_, begin_.step))
        continue;
      if (!is_empty) retained.push_back({ledger, ledger->unvisited, begin_});
      begin_ = line.retained();
      from_ = line.from;
      if (!line.own) ledger = open_parent(line);
    }
    std::ranges::reverse(retained);
    return retained;
  }

  /// Adds a session. Later work of another run belongs to that run and is not lost.
  void add(const Ledger& ledger, std::size_t number, record::ResumePoint end) {
    const LedgerLine& line = ledger.lines[number];
    Session session{
        ledger.run, line, {line.loaded.step + 1, end.step + 1}, {line.loaded.samples, end.samples}, {}, 0, 0};
    session.lost = {end.samples, end.samples};
    if (&ledger == &own_ && number + 1 < ledger.lines.size() && ledger.lines[number + 1].reached)
      session.lost.end = std::max(end.samples, ledger.lines[number + 1].reached->samples);
    sessions_.push_back(std::move(session));
  }

  /// The last step that can have a line of the session: a checkpoint that counts as an earlier iteration has
  /// replaced the lines after it.
  [[nodiscard]] std::int64_t last_recorded(std::size_t index) const {
    std::int64_t last = sessions_[index].steps.end - 1;
    for (std::size_t i = index + 1; i < sessions_.size(); ++i)
      if (sessions_[i].line.saved && sessions_[i].run == sessions_[index].run)
        last = std::min(last, sessions_[i].line.loaded.step);
    return last;
  }

  void read_steps_of(Session& session, std::int64_t last) {
    session.first_line = steps_.size();
    if (session.steps.size() == 0) return;
    record::ResumePoint before = session.line.loaded;
    for (const record::StepRecord& r : records(session.run)) {
      if (!session.steps.contains(r.iteration) || r.iteration > last) continue;
      const bool follows = r.iteration == before.step + 1;
      steps_.push_back(
          {r.iteration, {follows ? before.samples : r.consumed_samples, r.consumed_samples}, r.skipped});
      before = {r.iteration, r.consumed_samples};
    }
    session.lines = steps_.size() - session.first_line;
  }

  const std::vector<record::StepRecord>& records(const fs::path& run) {
    if (run != read_run_) {
      records_ = record::read_steps(record::RunFolder{run}.metrics());
      read_run_ = run;
    }
    return records_;
  }

  std::map<fs::path, Ledger> ledgers_;
  Ledger& own_;
  std::vector<Session> sessions_;
  std::vector<AuditedStep> steps_;
  record::ResumePoint begin_, end_;
  std::string from_;
  fs::path read_run_;
  std::vector<record::StepRecord> records_;
};

/// Steps that should have a line in metrics.jsonl and have none.
std::vector<IndexRange> unrecorded(const History& history) {
  std::vector<IndexRange> gaps;
  const auto add = [&gaps](std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    if (!gaps.empty() && gaps.back().end == begin)
      gaps.back().end = end;
    else
      gaps.push_back({begin, end});
  };
  for (const Session& session : history.sessions()) {
    if (session.steps.size() == 0) continue;
    std::int64_t next = session.steps.begin;
    for (const AuditedStep& step : history.steps_of(session)) {
      add(next, step.number);
      next = step.number + 1;
    }
    add(next, session.steps.end);
  }
  return gaps;
}

/// How often samples were computed by sessions in the weights, and by lost ones.
struct Computed {
  IndexRange samples;
  std::int64_t retained = 0, lost = 0;
};

/// Ranges of samples with equal counts, without those that were computed once and are in the weights.
std::vector<Computed> repeated_samples(const History& history) {
  std::set<std::int64_t> boundaries{0, history.begin().samples};
  for (const Session& s : history.sessions())
    boundaries.insert({s.samples.begin, s.samples.end, s.lost.begin, s.lost.end});
  std::vector<Computed> found;
  for (auto at = boundaries.begin(); std::next(at) != boundaries.end(); ++at) {
    Computed part{{*at, *std::next(at)}, *at < history.begin().samples ? 1 : 0, 0};
    for (const Session& s : history.sessions()) {
      part.retained += s.samples.contains(*at) ? 1 : 0;
      part.lost += s.lost.contains(*at) ? 1 : 0;
    }
    if (part.lost == 0 && part.retained < 2) continue;
    if (!found.empty() && found.back().samples.end == *at && found.back().retained == part.retained &&
        found.back().lost == part.lost)
      found.back().samples.end = part.samples.end;
    else
      found.push_back(part);
  }
  return found;
}

/// Adds ranges of samples that were computed more than once, and of those that are not in the weights.
void add_repeats(const History& history, json& report) {
  json repeated = json::array(), lost = json::array();
  for (const Computed& part : repeated_samples(history)) {
    if (part.retained == 0) {
      lost.push_back(to_json(part.samples));
      continue;
    }
    repeated.push_back({{"samples", to_json(part.samples)}, {"times", part.retained + part.lost}});
    if (part.retained > 1) repeated.back()["held"] = part.retained;
  }
  report["computed_again"] = std::move(repeated);
  report["lost"] = std::move(lost);
}

void add_skipped(const History& history, json& report) {
  std::vector<IndexRange> ranges;
  std::int64_t steps = 0;
  for (const AuditedStep& step : history.steps()) {
    if (!step.skipped) continue;
    ++steps;
    if (step.samples.begin == step.samples.end) continue;  // the previous step has no line
    if (!ranges.empty() && ranges.back().end == step.samples.begin)
      ranges.back().end = step.samples.end;
    else
      ranges.push_back(step.samples);
  }
  json found = json::array();
  for (const IndexRange& range : ranges) found.push_back(to_json(range));
  report["skipped"] = {{"steps", steps}, {"ranges", std::move(found)}};
}

/// Current states of the files that sessions read; each checksum is computed once.
class Files {
 public:
  /// "unchanged", "written again", "changed" or "missing".
  std::string state(const DataFile& was) {
    const auto [at, is_new] = now_.try_emplace(was.path);
    if (is_new && fs::exists(was.path)) at->second = file_now(was.path);
    if (!at->second) return "missing";
    if (at->second->bytes != was.bytes || at->second->xxh3_128 != was.xxh3_128) return "changed";
    return at->second->changed_ns == was.changed_ns ? "unchanged" : "written again";
  }
  [[nodiscard]] std::uint64_t bytes(const std::string& path) const {
    const auto& file = now_.at(path);
    return file ? file->bytes : 0;
  }

 private:
  std::map<std::string, std::optional<DataFile>> now_;
};

json to_json(const DataFile& was, const std::string& state, const Files& files) {
  json file{{"path", was.path}, {"state", state}, {"bytes", was.bytes}};
  if (state == "changed") file["bytes_now"] = files.bytes(was.path);
  return file;
}

/// The training data of a session, opened as the session did.
struct OpenData {
  config::Run run;
  std::unique_ptr<tokenizers::Tokenizer> tokenizer;
  data::Splits splits;
  [[nodiscard]] const data::Batches& train() const { return *splits[0]; }
};

/// `data` without dataset names: the session's paths may have been relative, those of its settings are not.
nlohmann::json without_names(nlohmann::json data) {
  for (auto& split : data)
    for (auto& set : split.at("sets")) set.erase("name");
  return data;
}

std::shared_ptr<const OpenData> open_data(const LedgerLine& line) {
  auto open = std::make_shared<OpenData>();
  for (const auto& [key, value] : line.settings) config::set(open->run, key, value);
  open->tokenizer = job::tokenizer_of(open->run);
  nlohmann::json tokenizer = job::tokenizer_state(open->run, open->tokenizer.get());
  const nlohmann::json state{{"settings", line.settings}, {"tokenizer", line.tokenizer}};
  if (!job::template_fault(open->run, state, "the session").empty())
    throw DataError("the chat template must have the text that the session used; got another text");
  // Older versions stored no checksum of the template.
  if (tokenizer.is_object() && line.tokenizer.is_object() && !line.tokenizer.contains(job::kTemplateChecksum))
    tokenizer.erase(job::kTemplateChecksum);
  if (tokenizer != line.tokenizer)
    throw DataError(fmt::format("the tokenizer must be the one that the session used; got {}, and {} there",
                                tokenizer.dump(), line.tokenizer.dump()));
  open->splits =
      job::open_batches(open->run, open->tokenizer.get(), {.done = {line.loaded.step, line.loaded.samples}});
  if (without_names(job::data_state(open->splits)) != without_names(line.data))
    throw DataError("tokens and epochs of the data must be those that the session recorded; got others");
  return open;
}

/// Opens the data of sessions, once for consecutive sessions with the same data.
class Data {
 public:
  /// The data of a session; null, with a problem, where it has changed.
  std::shared_ptr<const OpenData> of(const Session& session) {
    const LedgerLine& line = session.line;
    if (last_ != nullptr && last_->settings == line.settings && last_->data == line.data &&
        last_->files == line.files && last_->tokenizer == line.tokenizer)
      return open_;
    last_ = &line;
    open_ = nullptr;
    try {
      for (const DataFile& file : line.files)
        if (const std::string state = files_.state(file); state == "changed" || state == "missing")
          throw DataError(fmt::format("{} is {}", file.path, state));
      open_ = open_data(line);
    } catch (const Error& error) {
      const std::string problem =
          fmt::format("session of {}: its datasets cannot be counted; {}", line.began, error.what());
      if (std::ranges::find(problems_, problem) == problems_.end()) problems_.push_back(problem);
    }
    return open_;
  }
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }
  [[nodiscard]] Files& files() { return files_; }

 private:
  const LedgerLine* last_ = nullptr;
  std::shared_ptr<const OpenData> open_;
  Files files_;
  std::vector<std::string> problems_;
};

/// Usage of datasets by name and state: the same dataset in two sessions, or twice in a blend, is counted as
/// one.
class Uses {
 public:
  void add(const Session& session, const OpenData& open) {
    const data::SampleSource& source = open.train().samples();
    std::vector<data::DatasetUsage*> sets;
    for (const data::SampleOrder& order : source.orders()) {
      auto& use = uses_[{order.name, order.tokens, order.sequences.begin, order.sequences.end}];
      if (use == nullptr) {
        use = std::make_unique<data::DatasetUsage>(order);
        in_order_.push_back(use.get());
      }
      sets.push_back(use.get());
    }
    for (std::int64_t n = session.samples.begin; n < session.samples.end; ++n)
      data::add_usage(source, open.train().sample_of(n), n, sets);
  }

  [[nodiscard]] json to_json() const {
    json sets = json::array();
    for (const data::DatasetUsage* use : in_order_) {
      const data::DatasetUsage::Sequences sequences = use->sequences();
      sets.push_back({{"name", use->order().name},
                      {"samples", use->samples()},
                      {"tokens", use->tokens()},
                      {"epochs", use->epochs()},
                      {"sequences", sequences.all},
                      {"read", sequences.read},
                      {"read_again", sequences.repeated},
                      {"most", sequences.most},
                      {"first_again", use->first_repeat() ? json(*use->first_repeat()) : json()}});
    }
    return sets;
  }

 private:
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>,
           std::unique_ptr<data::DatasetUsage>>
      uses_;
  std::vector<const data::DatasetUsage*> in_order_;
};

json describe(std::int64_t number, const Session& session, const OpenData& open, const History& history,
              const data::SampleDescriber& describer) {
  const data::SampleSource& source = open.train().samples();
  const std::int64_t sample = open.train().sample_of(number);
  const std::span<const AuditedStep> steps = history.steps_of(session);
  const auto step =
      std::ranges::partition_point(steps, [&](const AuditedStep& s) { return s.samples.end <= number; });
  const bool known = step != steps.end() && step->samples.contains(number);
  json about{{"sample", number}, {"session", session.line.began}};
  about["step"] = known ? json(step->number) : json();
  about["skipped"] = known && step->skipped;
  const auto pieces = source.spans(sample);
  about["data_set"] =
      pieces.empty() ? source.name() : source.orders().at(static_cast<std::size_t>(pieces.front().set)).name;
  describer.add(open.train(), number, about);
  return about;
}

json described_samples(const History& history, Data& data, std::pair<std::int64_t, std::int64_t> range) {
  constexpr std::int64_t kMost = 10'000, kTokensShown = 64;
  const auto [first, last] = range;
  if (first < 0 || last < first || last >= history.end().samples)
    throw ConfigError(fmt::format(
        "--samples must be among the samples 0 to {} that the run has used; got {} to {}; correct it",
        history.end().samples - 1, first, last));
  if (last - first >= kMost)
    throw ConfigError(
        fmt::format("--samples must be at most {} samples; got {} to {}, {} samples; request fewer", kMost,
                    first, last, last - first + 1));
  json all = json::array();
  for (const Session& session : history.sessions()) {
    const IndexRange part{std::max(first, session.samples.begin), std::min(last + 1, session.samples.end)};
    if (part.size() == 0) continue;
    const auto open = data.of(session);
    if (open == nullptr) continue;
    const data::SampleDescriber describer(open->run, open->tokenizer.get(), kTokensShown);
    for (std::int64_t n = part.begin; n < part.end; ++n)
      all.push_back(describe(n, session, *open, history, describer));
  }
  return all;
}

json to_json(const Session& session) {
  const auto& saved = session.line.saved;
  return {{"run", session.run.string()},
          {"began", session.line.began},
          {"steps", to_json(session.steps)},
          {"samples", to_json(session.samples)},
          {"lost_samples", to_json(session.lost)},
          {"from", session.line.from.empty() ? json() : json(session.line.from)},
          {"counted", saved ? json{{"step", saved->step}, {"as", session.line.loaded.step}} : json()}};
}

}  // namespace

json audit(const fs::path& run, const AuditOptions& options) {
  const History history(run);
  json report{{"run", run.string()}, {"steps", history.end().step}, {"samples", history.end().samples}};
  report["sessions"] = json::array();
  for (const Session& session : history.sessions()) report["sessions"].push_back(to_json(session));
  report["before"] = json();
  if (history.begin().samples > 0)
    report["before"] = {{"samples", to_json(IndexRange{0, history.begin().samples})},
                        {"from", history.from()}};
  add_repeats(history, report);
  add_skipped(history, report);
  report["unrecorded"] = json::array();
  for (const IndexRange& gap : unrecorded(history)) report["unrecorded"].push_back(to_json(gap));

  Data data;
  Uses uses;
  report["files"] = json::array();
  std::set<std::tuple<std::string, std::uint64_t, std::string>> listed;
  for (const Session& session : history.sessions()) {
    if (session.samples.size() == 0) continue;
    for (const DataFile& file : session.line.files)
      if (listed.insert({file.path, file.bytes, file.xxh3_128}).second)
        report["files"].push_back(to_json(file, data.files().state(file), data.files()));
    if (const auto open = data.of(session)) uses.add(session, *open);
  }
  report["data_sets"] = uses.to_json();
  if (options.samples) report["shown"] = described_samples(history, data, *options.samples);
  report["problems"] = data.problems();
  return report;
}

bool data_changed(const json& audit) {
  return !audit.at("problems").empty() || std::ranges::any_of(audit.at("files"), [](const json& file) {
    return file.at("state") == "changed" || file.at("state") == "missing";
  });
}

}  // namespace colonnade::audit
