#include "client/trace/perfetto.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace outboard::trace {
namespace {

enum Process { kClient = 1, kGateway = 2, kWorker = 3 };

// One row of the picture: a thread of a process.
using Row = std::pair<int, int>;

// On one clock.
struct Event {
  Row row;
  std::string_view name;
  uint32_t session = 0;
  uint64_t seq = 0;
  uint64_t begin_ns = 0, end_ns = 0;
  std::string_view detail;
};

// Where an arrow touches a span.
struct Touch {
  Row row;
  uint64_t at_ns;
};

struct Arrow {
  const Event* asked = nullptr;
  const Event* passed = nullptr;
  const Event* applied = nullptr;
  const Event* first_kernel = nullptr;
  const Event* last_kernel = nullptr;
  const Event* awaited = nullptr;
};

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c < ' ' || c > '~' ? '?' : c;
  }
  return out + '"';
}

std::string Microseconds(uint64_t ns) { return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000); }

class Writer {
 public:
  Writer(const Collected& collected, std::ostream& out) : collected_(collected), out_(out) {}

  void Write() {
    Place();
    out_ << "{\"displayTimeUnit\":\"ns\",\n\"otherData\":{";
    WriteAbout();
    out_ << "},\n\"traceEvents\":[";
    NameRows();
    for (const Event& event : events_) WriteSpan(event);
    WriteArrows();
    out_ << "\n]}\n";
  }

 private:
  // Everything on the client's clock, in the order in which it is written: what contains before
  // what is contained.
  void Place() {
    for (const ClientSpan& span : collected_.client)
      events_.push_back({{kClient, static_cast<int>(span.thread)},
                         span.name,
                         span.session,
                         span.seq,
                         span.begin_ns,
                         std::max(span.begin_ns, span.end_ns),
                         {}});
    for (const auto& [key, clocks] : collected_.epochs)
      maps_[key] = {clocks.GatewayMap(), clocks.WorkerMap()};
    for (const RemoteSpan& remote : collected_.remote) PlaceRemote(remote);
    std::sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
      return std::tuple(a.row, a.begin_ns, ~a.end_ns, a.seq, a.name) <
             std::tuple(b.row, b.begin_ns, ~b.end_ns, b.seq, b.name);
    });
    for (const Event& event : events_) zero_ns_ = std::min(zero_ns_, event.begin_ns);
  }

  void PlaceRemote(const RemoteSpan& remote) {
    const auto maps = maps_.find(remote.epoch);
    const bool gateway = remote.span.where() == proto::Span::GATEWAY;
    if (maps == maps_.end() || !(gateway ? maps->second.gateway : maps->second.worker).known) {
      ++unplaced_;
      return;
    }
    const ClockMap& map = gateway ? maps->second.gateway : maps->second.worker;
    const uint64_t begin = remote.span.begin_ns();
    const uint64_t duration = std::min<uint64_t>(remote.span.duration_ns(), uint64_t{1} << 60);
    const int way = gateway && remote.span.name() == "to client" ? 1 : 0;
    events_.push_back({RowOf(gateway ? kGateway : kWorker, remote.epoch, way), remote.span.name(),
                       remote.epoch.session, remote.span.seq(), map.Ours(begin),
                       map.Ours(begin + duration), remote.span.detail()});
  }

  Row RowOf(Process process, const EpochKey& epoch, int way) {
    const auto [row, fresh] = rows_.try_emplace({process, epoch, way}, 0);
    if (fresh) row->second = static_cast<int>(rows_.size());
    return {process, row->second};
  }

  // ---- what is written
  void WriteAbout() {
    out_ << "\"spans_dropped\":" << collected_.dropped
         << ",\"spans_without_a_clock\":" << unplaced_;
    for (const auto& [key, maps] : maps_) {
      for (const auto& [name, map] :
           {std::pair("gateway", &maps.gateway), std::pair("worker", &maps.worker)}) {
        if (!map->known) continue;
        out_ << ",\n"
             << Quoted(absl::StrCat("clock of the ", name, ", session ", key.session, ", epoch ",
                                    key.epoch))
             << ":{\"offset_us\":" << map->offset_ns / 1000
             << ",\"error_us_max\":" << (map->error_ns_max + 999) / 1000
             << ",\"same_clock\":" << (map->same_clock ? "true" : "false") << "}";
      }
    }
  }

  void Begin() {
    out_ << (first_ ? "\n" : ",\n");
    first_ = false;
  }

  void Name(const char* what, Row row, std::string_view name) {
    Begin();
    out_ << "{\"ph\":\"M\",\"name\":\"" << what << "\",\"pid\":" << row.first
         << ",\"tid\":" << row.second << ",\"args\":{\"name\":" << Quoted(name) << "}}";
  }

  void NameRows() {
    Name("process_name", {kClient, 0}, "client");
    Name("process_name", {kGateway, 0}, "gateway");
    Name("process_name", {kWorker, 0}, "worker");
    std::map<Row, bool> client_threads;
    for (const Event& event : events_)
      if (event.row.first == kClient) client_threads[event.row] = true;
    for (const auto& [row, _] : client_threads)
      Name("thread_name", row, absl::StrCat("thread ", row.second));
    for (const auto& [of, tid] : rows_) {
      const auto& [process, epoch, way] = of;
      std::string name = absl::StrCat("session ", epoch.session);
      if (epoch.epoch > 1) absl::StrAppend(&name, ", epoch ", epoch.epoch);
      const auto worker = collected_.workers.find(epoch);
      if (process == kGateway)
        absl::StrAppend(&name, way == 0 ? ": to the worker" : ": to the client");
      else if (worker != collected_.workers.end() && !worker->second.empty())
        absl::StrAppend(&name, ": ", worker->second);
      Name("thread_name", {process, tid}, name);
    }
  }

  void WriteSpan(const Event& event) {
    Begin();
    out_ << "{\"ph\":\"X\",\"name\":" << Quoted(event.name) << ",\"pid\":" << event.row.first
         << ",\"tid\":" << event.row.second << ",\"ts\":" << Microseconds(event.begin_ns - zero_ns_)
         << ",\"dur\":" << Microseconds(event.end_ns - event.begin_ns) << ",\"args\":{";
    const char* comma = "";
    if (event.session != 0) {
      out_ << "\"session\":" << event.session;
      comma = ",";
    }
    if (event.seq != 0) {
      out_ << comma << "\"seq\":" << event.seq;
      comma = ",";
    }
    if (!event.detail.empty()) out_ << comma << "\"detail\":" << Quoted(event.detail);
    out_ << "}}";
  }

  void WriteArrows() {
    for (const auto& [item, arrow] : Arrows()) {
      if (arrow.asked == nullptr || arrow.applied == nullptr) continue;
      std::vector<Touch> path = {{arrow.asked->row, arrow.asked->begin_ns}};
      if (arrow.passed != nullptr) path.push_back({arrow.passed->row, arrow.passed->begin_ns});
      const Event* const first = arrow.first_kernel ? arrow.first_kernel : arrow.applied;
      path.push_back({first->row, first->begin_ns});
      if (arrow.last_kernel != nullptr && arrow.last_kernel != first)
        path.push_back({arrow.last_kernel->row, arrow.last_kernel->begin_ns});
      if (arrow.awaited != nullptr) {
        // Into the span, where it ends.
        const Event& awaited = *arrow.awaited;
        path.push_back({awaited.row, std::max(awaited.begin_ns + 1, awaited.end_ns) - 1});
      }
      for (size_t i = 0; i < path.size(); ++i) {
        Begin();
        out_ << "{\"ph\":\""
             << (i == 0                ? "s"
                 : i + 1 < path.size() ? "t"
                                       : "f")
             << "\",\"bp\":\"e\",\"cat\":\"item\",\"name\":\"item\",\"id\":"
             << ((static_cast<uint64_t>(item.first) << 40) | (item.second & 0xFFFFFFFFFF))
             << ",\"pid\":" << path[i].row.first << ",\"tid\":" << path[i].row.second
             << ",\"ts\":" << Microseconds(path[i].at_ns - zero_ns_) << "}";
      }
    }
  }

  // By session and seq. Of an item that was applied twice, the first.
  std::map<std::pair<uint32_t, uint64_t>, Arrow> Arrows() const {
    std::map<std::pair<uint32_t, uint64_t>, Arrow> arrows;
    std::map<uint32_t, std::vector<const Event*>> passed;  // rising in seq
    const auto set = [](const Event*& place, const Event& event) {
      if (place == nullptr) place = &event;
    };
    for (const Event& event : events_) {
      if (event.seq == 0 || event.session == 0) continue;
      Arrow& arrow = arrows[{event.session, event.seq}];
      switch (event.row.first) {
        case kClient:
          set(event.name.starts_with("wait") ? arrow.awaited : arrow.asked, event);
          break;
        case kGateway:
          if (event.name == "to worker") passed[event.session].push_back(&event);
          break;
        case kWorker:
          if (event.name.starts_with("kernel ")) {
            set(arrow.first_kernel, event);
            arrow.last_kernel = &event;
          } else if (event.name != "plan" && event.name != "compile" && event.name != "answer") {
            set(arrow.applied, event);
          }
          break;
      }
    }
    for (auto& [session, frames] : passed)
      std::stable_sort(frames.begin(), frames.end(),
                       [](const Event* a, const Event* b) { return a->seq < b->seq; });
    // A frame's span has the seq of its last item.
    for (auto& [item, arrow] : arrows) {
      const std::vector<const Event*>& frames = passed[item.first];
      const auto frame =
          std::lower_bound(frames.begin(), frames.end(), item.second,
                           [](const Event* event, uint64_t seq) { return event->seq < seq; });
      if (frame != frames.end()) arrow.passed = *frame;
    }
    return arrows;
  }

  struct Maps {
    ClockMap gateway, worker;
  };
  const Collected& collected_;
  std::ostream& out_;
  std::map<EpochKey, Maps> maps_;
  std::map<std::tuple<Process, EpochKey, int>, int> rows_;
  std::vector<Event> events_;
  uint64_t zero_ns_ = UINT64_MAX;
  uint64_t unplaced_ = 0;
  bool first_ = true;
};

}  // namespace

void WritePerfetto(const Collected& collected, std::ostream& out) {
  Writer(collected, out).Write();
}

}  // namespace outboard::trace
