// How a graph would be spread over devices, in a page of text.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "cli/commands.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/shard/shard.h"
#include "worker/groups/link_speed.h"

namespace outboard::cli {
namespace {

using shard::Layout;
using shard::Mesh;
using shard::Spread;

constexpr size_t kLinesMax = 40;  // of one table: a page

absl::StatusOr<Mesh> MeshFrom(const ShardFlags& flags) {
  Mesh mesh{{flags.devices}};
  if (!flags.mesh.empty()) {
    mesh.sizes.clear();
    for (const absl::string_view size : absl::StrSplit(flags.mesh, 'x')) {
      int64_t number;
      if (!absl::SimpleAtoi(size, &number))
        return absl::InvalidArgumentError(
            absl::StrCat("--mesh ", flags.mesh.substr(0, 32), " is no list of sizes as 2x4"));
      mesh.sizes.push_back(number);
    }
    if (mesh.ranks() != flags.devices)
      return absl::InvalidArgumentError(absl::StrCat(
          "--mesh ", ToString(mesh), " has ", mesh.ranks(), " devices, not ", flags.devices));
  }
  OB_RETURN_IF_ERROR(CheckMesh(mesh));
  return mesh;
}

std::string Bytes(double bytes) {
  if (bytes >= 1e9) return absl::StrFormat("%.2f GB", bytes / 1e9);
  if (bytes >= 1e6) return absl::StrFormat("%.2f MB", bytes / 1e6);
  return absl::StrFormat("%.1f kB", bytes / 1e3);
}

std::string Summary(Spread spread, const shard::ShardedGraph& sharded) {
  return absl::StrFormat("%-7s %10.3g %12s %8d %11s %10.3f ms %10.3f ms  %s\n",
                         std::string(Name(spread)), sharded.report.operations,
                         Bytes(sharded.report.bytes_sent), sharded.report.collectives.size(),
                         Bytes(sharded.report.memory_bytes), 1e3 * sharded.report.predicted_s,
                         1e3 * sharded.report.later_s, sharded.report.choice);
}

std::string Speeds(const shard::DeviceSpeeds& speeds, bool measured) {
  return absl::StrFormat(
      "Predicted by %.0f GFLOP/s a device, links of %s/s and %.0f us a message, %s.\n",
      speeds.operations_per_s / 1e9, Bytes(speeds.link_bytes_per_s), 1e6 * speeds.collective_s,
      measured ? "measured here and rounded to powers of two" : "which is assumed");
}

std::string Results(const UOp* sink, const shard::ShardedGraph& shown) {
  std::string out;
  size_t lines = 0;
  for (size_t i = 0; i < sink->src.size(); ++i) {
    if (shown.results[i].is_whole() || ++lines > kLinesMax) continue;
    absl::StrAppend(&out, "  result ", i, ", ", ShapeToString(sink->src[i]->shape), ": ",
                    ToString(shown.results[i]), "\n");
  }
  if (lines > kLinesMax) absl::StrAppend(&out, "  and ", lines - kLinesMax, " more are cut\n");
  absl::StrAppend(&out, lines == 0 ? "  all whole on each device\n" : "  the others are whole\n");
  return out;
}

// The largest first.
std::string Collectives(std::vector<shard::CollectiveUse> uses) {
  std::string out;
  std::stable_sort(uses.begin(), uses.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  for (size_t i = 0; i < std::min(uses.size(), kLinesMax); ++i) {
    const shard::CollectiveUse& use = uses[i];
    const bool surprise = use.op == Op::kUnshard && !use.hinted;
    absl::StrAppendFormat(&out, "%c %-15s %12s  node %d: %s\n", surprise ? '*' : ' ',
                          std::string(outboard::Name(use.op)),
                          Bytes(static_cast<double>(use.bytes)), use.node, use.what);
  }
  if (uses.size() > kLinesMax)
    absl::StrAppend(&out, "  and ", uses.size() - kLinesMax, " smaller ones\n");
  return uses.empty() ? "  none\n" : out;
}

}  // namespace

absl::StatusOr<std::string> ShardExplanation(std::string_view encoding, const ShardFlags& flags) {
  OB_ASSIGN_OR_RETURN(const Mesh mesh, MeshFrom(flags));
  OB_ASSIGN_OR_RETURN(const Spread asked, shard::SpreadFromName(flags.spread));
  Graph graph;
  const absl::StatusOr<const UOp*> decoded = DecodeGraph(graph, encoding, Level::kTensor);
  if (!decoded.ok())
    return absl::Status(decoded.status().code(),
                        absl::StrCat(decoded.status().message(),
                                     "; a program writes its graphs with GRAPHS=FOLDER"));
  const UOp* const sink = *decoded;
  shard::DeviceSpeeds speeds;
  if (flags.measures) {
    OB_ASSIGN_OR_RETURN(const worker::LinkSpeed link, worker::MeasureLink());
    speeds = shard::SpeedsOfLink(link.bytes_per_s, link.message_s);
  }
  std::string out = absl::StrCat(
      Speeds(speeds, flags.measures), "On ", ToString(mesh),
      " devices, for one device and one Run. Spreads are judged by later steps, which find state "
      "as this one leaves it.\n",
      absl::StrFormat("%-7s %10s %12s %8s %11s %13s %13s  %s\n", "spread", "operations", "sent",
                      "messages", "memory", "predicted", "later steps",
                      "what is cut to begin with"));
  const shard::DeviceMemory memory{.bytes = static_cast<int64_t>(std::min<uint64_t>(
                                       flags.memory_bytes, limits::kStoredBytesMax))};
  shard::ShardedGraph shown;
  for (const Spread spread : {Spread::kAuto, Spread::kData, Spread::kFsdp, Spread::kTensor}) {
    absl::StatusOr<shard::ShardedGraph> sharded =
        ShardGraph(graph, sink, mesh, {},
                   {.spread = spread, .speeds = speeds, .memory = memory});
    if (!sharded.ok() && (spread == asked || !absl::IsResourceExhausted(sharded.status())))
      return sharded.status();
    absl::StrAppend(&out, sharded.ok() ? Summary(spread, *sharded)
                                       : absl::StrCat(absl::StrFormat("%-7s ", Name(spread)),
                                                      sharded.status().message(), "\n"));
    if (spread == asked) shown = *std::move(sharded);
  }
  absl::StrAppend(&out, "\nResults with spread ", flags.spread, ":\n", Results(sink, shown),
                  "\nCollectives (* is one that no hint asked for):\n",
                  Collectives(shown.report.collectives));
  return out;
}

namespace {

int RunShardExplain(const ShardFlags& flags) {
  std::ifstream in(flags.file, std::ios::binary);
  std::string bytes(static_cast<size_t>(limits::kGraphBytesMax) + 1, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(in.gcount()));
  const absl::StatusOr<std::string> text =
      bytes.empty() ? absl::NotFoundError("it cannot be read") : ShardExplanation(bytes, flags);
  if (!text.ok()) {
    std::fprintf(stderr, "outboard: %s: %s\n", flags.file.c_str(),
                 std::string(text.status().message()).c_str());
    return 1;
  }
  std::fputs(text->c_str(), stdout);
  return 0;
}

}  // namespace

void AddShardCommands(Arguments& app) {
  const auto flags = std::make_shared<ShardFlags>();
  ShardFlags& sharded = *flags;
  Command shard = app.Subcommand("shard", "How a graph is spread over devices");
  shard.RequireSubcommand();
  Command shard_explain = shard.Subcommand(
      "explain", "Show layouts, bytes and predicted time of a graph (docs/many-devices.md)");
  shard_explain.Add("graph", &sharded.file, "A graph that a program wrote with GRAPHS=FOLDER")
      .Required()
      .ExistingPath();
  shard_explain.Add("--devices", &sharded.devices, "How many devices").Positive();
  shard_explain.Add("--mesh", &sharded.mesh, "How they are arranged, as 2x4 (default: one axis)");
  shard_explain.Add("--spread", &sharded.spread, "auto, data, fsdp or tensor").ShowDefault();
  shard_explain.Add("--measure", &sharded.measures,
                    "Predict by this machine's links, measured as a worker does it");
  shard_explain.AddBytes("--memory", &sharded.memory_bytes,
                         "What a device has (default: enough for any spread)");
  shard_explain.Runs(flags, RunShardExplain);
}

}  // namespace outboard::cli
