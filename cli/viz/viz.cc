#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "worker/compile/rewrite_log.h"

namespace outboard::cli {

extern const char* const kVizPage;  // viz_page.html

namespace {

struct VizFlags {
  std::string file;  // or a folder, whose newest file is shown; empty: the folder of VIZ=1
  int port = 0;      // 0 takes a free one
  int life_fd = -1;
  ReadyOptions ready;
};

absl::StatusOr<std::string> FileOf(const VizFlags& flags) {
  const std::string place = flags.file.empty() ? worker::DefaultLogFolder() : flags.file;
  if (std::filesystem::is_regular_file(place)) return place;
  return worker::NewestLog(place);
}

absl::StatusOr<std::string> Contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", file));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace

std::vector<Resource> VizResources(const std::string& file) {
  return {{"/", "text/html; charset=utf-8", [] { return std::string(kVizPage); }},
          {"/rewrites", "application/x-ndjson", [file] { return Contents(file); }}};
}

namespace {

int RunViz(const VizFlags& flags) {
  const auto file = FileOf(flags);
  if (!file.ok()) return Report(file.status());
  auto server = PageServer::Start(flags.port, VizResources(*file));
  if (!server.ok()) return Report(server.status());
  absl::Status status =
      TellReady(flags.ready, absl::StrCat("http://127.0.0.1:", (*server)->port(), "/"));
  if (status.ok()) status = AwaitEnd(flags.life_fd);
  return Report(status);
}

}  // namespace

void AddVizCommand(Arguments& app) {
  const auto flags = std::make_shared<VizFlags>();
  VizFlags& viz = *flags;
  Command see =
      app.Subcommand("viz", "Serve a page that shows how each kernel was rewritten (docs/viz.md)");
  see.Add("file", &viz.file, "A file written with VIZ=1, or its folder").ExistingPath();
  see.Add("--port", &viz.port, "Port on this machine; 0 takes a free one").Between(0, 65535);
  see.Add("--ready-file", &viz.ready.file, "Write the address here once it can be opened");
  see.Add("--life-fd", &viz.life_fd).Hidden();
  see.Runs(flags, [](const VizFlags& given) {
    BecomeServer(given.life_fd, given.ready);
    return RunViz(given);
  });
}

}  // namespace outboard::cli
