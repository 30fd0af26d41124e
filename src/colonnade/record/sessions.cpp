// See sessions.h.
#include "colonnade/record/sessions.h"

#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/reason.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

/// {"data": 1.5, "forward-backward": 6, ...}
template <typename Numbers, typename Name>
json by_name(const Numbers& numbers, const Name& name) {
  json object = json::object();
  for (std::size_t i = 0; i < numbers.size(); ++i) object[std::string(name(i))] = numbers[i];
  return object;
}

template <typename Numbers, typename Name>
Numbers from_names(const json& object, const Name& name) {
  Numbers numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) object.at(std::string(name(i))).get_to(numbers[i]);
  return numbers;
}

std::string_view time_name(std::size_t i) { return phase_name(static_cast<Phase>(i)); }
std::string_view memory_name(std::size_t i) { return memory_phase_name(static_cast<MemoryPhase>(i)); }
using Bytes = decltype(MemoryPeaks::bytes);

json summary_json(const RankSummary& r) {
  return {{"rank", r.rank},
          {"place", r.coordinates},
          {"owns", r.blocks},
          {"parameters", r.parameters},
          {"planned_bytes", by_name(r.planned.bytes, memory_name)},
          {"measured_bytes", by_name(r.measured.bytes, memory_name)}};
}

RankSummary to_rank(const json& r) {
  return {.rank = r.at("rank").get<int>(),
          .coordinates = r.at("place").get<std::string>(),
          .blocks = r.at("owns").get<std::string>(),
          .parameters = r.at("parameters").get<std::int64_t>(),
          .planned = {from_names<Bytes>(r.at("planned_bytes"), memory_name)},
          .measured = {from_names<Bytes>(r.at("measured_bytes"), memory_name)}};
}

json summary_json(const RunSummary& s) {
  json ranks = json::array();
  for (const RankSummary& rank : s.ranks) ranks.push_back(summary_json(rank));
  return {{"first_step", s.first_step},
          {"last_step", s.last_step},
          {"began", s.began},
          {"title", s.title},
          {"facts", s.facts},
          {"wall_seconds", s.wall_seconds},
          {"seconds", by_name(s.times.seconds, time_name)},
          {"ranks", std::move(ranks)},
          {"pipeline_svg", s.pipeline_svg}};
}

RunSummary to_session(const json& s) {
  RunSummary session{.title = s.at("title").get<std::string>(),
                     .facts = s.at("facts").get<decltype(RunSummary::facts)>(),
                     .pipeline_svg = s.at("pipeline_svg").get<std::string>(),
                     .wall_seconds = s.at("wall_seconds").get<double>(),
                     .first_step = s.at("first_step").get<std::int64_t>(),
                     .last_step = s.at("last_step").get<std::int64_t>(),
                     .began = s.at("began").get<std::string>()};
  session.times.seconds = from_names<decltype(PhaseTimes::seconds)>(s.at("seconds"), time_name);
  for (const json& rank : s.at("ranks")) session.ranks.push_back(to_rank(rank));
  return session;
}

}  // namespace

std::vector<RunSummary> read_sessions(const fs::path& path) {
  std::vector<RunSummary> sessions;
  if (!fs::exists(path)) return sessions;
  try {
    for (const json& session : json::parse(read_file(path))) sessions.push_back(to_session(session));
  } catch (const json::exception& error) {
    throw DataError(fmt::format("{} must be a list of sessions in JSON; got {}; move it away", path.string(),
                                reason_of(error)));
  }
  return sessions;
}

void write_sessions(const fs::path& path, const std::vector<RunSummary>& sessions) {
  json all = json::array();
  for (const RunSummary& session : sessions) all.push_back(summary_json(session));
  write_file_atomically(path, all.dump(1) + "\n");
}

std::vector<RunSummary> sessions_until(std::vector<RunSummary> sessions, std::int64_t loaded) {
  std::erase_if(sessions, [loaded](const RunSummary& s) { return s.first_step > loaded; });
  return sessions;
}

}  // namespace colonnade::record
