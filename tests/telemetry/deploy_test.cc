// What the documents, dashboards and alerts say of metrics and events is so.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "telemetry/metric.h"
#include "tests/support/paths.h"
#include "tests/telemetry/promtool.h"

namespace outboard::telemetry {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Names = std::set<std::string>;

const fs::path kRoot = test::kSourceFolder;

std::string Read(const fs::path& path) {
  std::ifstream file(kRoot / path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Names Found(const std::regex& pattern, const std::string& text) {
  Names names;
  for (std::sregex_iterator m(text.begin(), text.end(), pattern), end; m != end; ++m)
    names.insert((*m)[1]);
  return names;
}

bool EndsWith(std::string_view text, std::string_view end) { return text.ends_with(end); }

// The names that a scrape has: of a histogram three.
Names Series() {
  Names names;
  for (const MetricInfo& info : MetricTable()) {
    const std::string name(info.name);
    if (info.type != MetricType::kHistogram) {
      names.insert(name);
      continue;
    }
    for (const char* part : {"_bucket", "_sum", "_count"}) names.insert(name + part);
  }
  return names;
}

Names SeriesIn(const std::string& query) {
  return Found(std::regex("\\b((?:outboard|process)_[a-z_]+)\\b"), query);
}

std::string Unknown(const std::string& query) {
  const Names series = Series();
  for (const std::string& name : SeriesIn(query))
    if (!series.contains(name)) return name;
  return "";
}

// ---- the table

TEST(MetricTable, Page_IsUpToDate) {
  EXPECT_EQ(Read("docs/metrics.md"), MetricsPage())
      << "run: outboard metrics ls > docs/metrics.md";
}

TEST(MetricTable, Names_FollowPrometheus) {
  Names seen;
  for (const MetricInfo& info : MetricTable()) {
    const std::string name(info.name);
    EXPECT_TRUE(std::regex_match(name, std::regex("(outboard|process)_[a-z][a-z_]*[a-z]"))) << name;
    EXPECT_TRUE(seen.insert(name).second) << name << " twice";
    EXPECT_EQ(EndsWith(name, "_total"), info.type == MetricType::kCounter) << name;
    if (info.type == MetricType::kHistogram) {
      EXPECT_TRUE(EndsWith(name, "_seconds")) << name;
      EXPECT_TRUE(std::is_sorted(info.buckets.begin(), info.buckets.end()));
      EXPECT_FALSE(info.buckets.empty()) << name;
    }
    for (const char* unit :
         {"_ms", "_us", "_ns", "_milliseconds", "_minutes", "_kb", "_mb", "_kib"})
      EXPECT_EQ(name.find(unit + std::string("_")), std::string::npos) << name;
    EXPECT_TRUE(info.help.ends_with(".") || info.help.ends_with(").")) << name << ": " << info.help;
  }
}

TEST(MetricTable, Labels_NameNobody) {
  for (const MetricInfo& info : MetricTable()) {
    for (const Label& label : info.labels) {
      EXPECT_GT(label.size(), 0u) << info.name;
      EXPECT_TRUE(std::regex_match(std::string(label.name), std::regex("[a-z_]+")));
      EXPECT_EQ(label.name == "account", info.by_account) << info.name;
      for (const char* somebody : {"session", "tenant", "key", "name", "peer", "worker"})
        EXPECT_NE(label.name, somebody) << info.name;
    }
  }
}

// ---- dashboards

Names Queries(const Json& json) {
  Names queries;
  if (json.is_object() && json.contains("expr")) queries.insert(json["expr"].get<std::string>());
  if (json.is_structured())
    for (const Json& part : json)
      for (const std::string& query : Queries(part)) queries.insert(query);
  return queries;
}

std::vector<fs::path> Dashboards() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(kRoot / "deploy/grafana"))
    if (entry.path().extension() == ".json") paths.push_back(fs::relative(entry.path(), kRoot));
  return paths;
}

TEST(Dashboards, AskForMetricsThatExist) {
  EXPECT_EQ(Unknown("rate(outboard_no_such_total[5m])"), "outboard_no_such_total");
  EXPECT_EQ(Unknown("outboard_lease_seconds"), "outboard_lease_seconds") << "a histogram has parts";
  EXPECT_EQ(Unknown("outboard_lease_seconds_bucket"), "");
  const std::vector<fs::path> paths = Dashboards();
  EXPECT_EQ(paths.size(), 3u);
  for (const fs::path& path : paths) {
    const Names queries = Queries(Json::parse(Read(path)));
    EXPECT_GT(queries.size(), 10u) << path;
    for (const std::string& query : queries) EXPECT_EQ(Unknown(query), "") << path << ": " << query;
  }
}

TEST(Dashboards, Panels_DoNotOverlap) {
  for (const fs::path& path : Dashboards()) {
    std::map<std::pair<int, int>, std::string> taken;
    Names titles;
    std::set<int> ids;
    const Json dashboard = Json::parse(Read(path));
    EXPECT_EQ(dashboard["uid"], "outboard-" + path.stem().string());
    for (const Json& panel : dashboard["panels"]) {
      const std::string title = panel["title"];
      EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second) << title;
      EXPECT_FALSE(panel["targets"].empty()) << title;
      const Json& at = panel["gridPos"];
      EXPECT_LE(at["x"].get<int>() + at["w"].get<int>(), 24) << title;
      for (int x = at["x"]; x < at["x"].get<int>() + at["w"].get<int>(); ++x)
        for (int y = at["y"]; y < at["y"].get<int>() + at["h"].get<int>(); ++y)
          EXPECT_TRUE(taken.emplace(std::pair(x, y), title).second)
              << path << ": " << title << " and " << taken[std::pair(x, y)];
    }
  }
}

// As recording rules, which promtool reads.
TEST(Dashboards, Queries_AreValid) {
  OB_NEEDS_PROMTOOL();
  std::string rules = "groups:\n  - name: queries\n    rules:\n";
  int count = 0;
  for (const fs::path& path : Dashboards()) {
    for (std::string query : Queries(Json::parse(Read(path)))) {
      query = std::regex_replace(query, std::regex("\\$instance"), "x");
      rules += "      - record: query:" + std::to_string(count++) +
               "\n        expr: " + Json(query).dump() + "\n";
    }
  }
  const test::TempFolder folder;
  std::ofstream(folder / "rules.yml") << rules;
  EXPECT_EQ(test::Promtool("check rules " + (folder / "rules.yml")), "");
}

// ---- alerts

Names Alerts() { return Found(std::regex("- alert: (\\w+)"), Read("deploy/prometheus/rules.yml")); }

TEST(Alerts, AskForMetricsThatExist) {
  EXPECT_GT(Alerts().size(), 20u);
  const Names queries =
      Found(std::regex("\\n +expr: ([^\n]+)"), Read("deploy/prometheus/rules.yml"));
  EXPECT_EQ(queries.size(), Alerts().size());
  for (const std::string& query : queries) EXPECT_EQ(Unknown(query), "") << query;
}

TEST(Alerts, EachHasAParagraphInTheRunbook) {
  EXPECT_EQ(Found(std::regex("\n### (\\w+)\n"), Read("docs/runbook.md")), Alerts());
}

TEST(Alerts, EachIsTested) {
  EXPECT_EQ(Found(std::regex("alertname: (\\w+)"), Read("deploy/prometheus/rules_test.yml")),
            Alerts());
}

TEST(Alerts, EachFiresOnce) {
  OB_NEEDS_PROMTOOL();
  const std::string folder = (kRoot / "deploy/prometheus/").string();
  EXPECT_EQ(test::Promtool("check rules " + folder + "rules.yml"), "");
  EXPECT_EQ(test::Promtool("test rules " + folder + "rules_test.yml"), "");
}

TEST(ScrapeExample, IsValid) {
  OB_NEEDS_PROMTOOL();
  // Not the files that it names, which are another machine's.
  EXPECT_EQ(test::Promtool("check config --syntax-only " +
                           (kRoot / "deploy/prometheus/prometheus.yml").string()),
            "");
}

// ---- events

// The names of all events in the code of the servers.
Names Events() {
  Names events;
  const std::regex written(
      "Log(?:Debug|Info|Warning|Error|At)\\(\\s*(?:[^\";]*,\\s*)?\"([a-z0-9_]+)\"");
  for (const char* folder : {"telemetry", "gateway", "worker", "cli"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
      for (const std::string& event : Found(written, Read(fs::relative(entry.path(), kRoot))))
        events.insert(event);
    }
  events.insert("log_suppressed");  // the log's own
  return events;
}

TEST(Events, AreThoseOfThePage) {
  EXPECT_EQ(Found(std::regex("\n\\| `([a-z0-9_]+)` \\| (?:debug|info|warning|error)"),
                  Read("docs/logs.md")),
            Events());
}

}  // namespace
}  // namespace outboard::telemetry
