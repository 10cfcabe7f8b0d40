#include "compiler/codegen/plan.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "compiler/ir/check.h"

namespace outboard::codegen {

Tile PlainTile(int range, int64_t extent) {
  Tile tile;
  tile.range = range;
  tile.trips = extent;
  return tile;
}

Tile ScalarTile(int range, int64_t extent, int64_t count) {
  Tile tile = PlainTile(range, extent);
  count = std::min(count, extent);
  if (count <= 1) return tile;
  tile.step = count;
  tile.trips = extent / count;
  tile.main.clear();
  for (int64_t i = 0; i < count; ++i) tile.main.push_back({i, 1, 1});
  for (int64_t i = 0; i < extent % count; ++i) tile.rest.push_back({i, 1, 1});
  return tile;
}

Tile VectorTile(int range, int64_t extent, int lanes, int64_t count, bool masked) {
  Tile tile = PlainTile(range, extent);
  if (extent == 0) return tile;
  const auto pieces = [&](int64_t length) {
    std::vector<Piece> out;
    for (int64_t i = 0; i < length; i += lanes) {
      const int active = static_cast<int>(std::min<int64_t>(lanes, length - i));
      const int width =
          masked ? lanes : static_cast<int>(std::bit_ceil(static_cast<unsigned>(active)));
      out.push_back({i, width, active});
    }
    return out;
  };
  tile.step = std::min<int64_t>(extent, lanes * count);
  tile.trips = extent / tile.step;
  tile.main = pieces(tile.step);
  tile.rest = pieces(extent % tile.step);
  return tile;
}

int64_t Plan::tasks() const {
  int64_t tasks = 1;
  for (int i = 0; i < task_loops; ++i) tasks *= outputs[i].blocks();
  return tasks;
}

std::string PlanToString(const Kernel& kernel, const Plan& plan) {
  std::string out = absl::StrCat("tasks ", plan.tasks(), "\n");
  const auto line = [&](const char* what, const Tile& tile) {
    absl::StrAppend(&out, "  ", what, kernel.ranges[tile.range].node->arg[0], " extent ",
                    kernel.ranges[tile.range].extent, " step ", tile.step, " trips ", tile.trips);
    for (const auto* pieces : {&tile.main, &tile.rest}) {
      absl::StrAppend(&out, pieces == &tile.main ? " main" : " rest");
      for (const Piece& p : *pieces)
        absl::StrAppend(&out, " ", p.offset, ":", p.active, "/", p.lanes);
    }
    out += "\n";
  };
  for (const Tile& tile : plan.outputs) line("r", tile);
  for (const GroupPlan& group : plan.groups) {
    absl::StrAppend(&out, " reduce, partials ", group.partials, "\n");
    for (const Tile& tile : group.loops) line("k", tile);
  }
  return out;
}

}  // namespace outboard::codegen
