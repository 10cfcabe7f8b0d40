// The parameters of a kernel: addresses of buffers, of the VARs, and the maps of tensors.
#include "absl/strings/str_cat.h"
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {
namespace {

constexpr int kMapBytes = 128, kMapAlign = 64;

}  // namespace

std::string PtxPrinter::Parameters() const {
  std::string text;
  const auto add = [&](const auto&... parts) {
    absl::StrAppend(&text, text.empty() ? "" : ",", "\n\t.param ", parts...);
  };
  for (int slot = 0; slot < program_.buffer_count; ++slot) add(".u64 buffer", slot);
  if (program_.reads_vars()) add(".u64 vars");
  for (size_t map = 0; map < program_.maps.size(); ++map)
    add(".align ", kMapAlign, " .b8 map", map, "[", kMapBytes, "]");
  return text;
}

void PtxPrinter::LoadParameters() {
  const auto load = [&](const std::string& name) {
    const Operand address = text_.New(Width::k64);
    text_.Line("ld.param.b64 ", address, ", [", name, "]");
    return address;
  };
  for (int slot = 0; slot < program_.buffer_count; ++slot)
    buffers_.push_back(load(absl::StrCat("buffer", slot)));
  if (program_.reads_vars()) vars_ = load("vars");
  for (size_t map = 0; map < program_.maps.size(); ++map) {
    const Operand place = text_.New(Width::k64);
    text_.Line("mov.b64 ", place, ", map", map);
    maps_.push_back(text_.Value("cvta.param.u64", Width::k64, {place}));
  }
}

}  // namespace outboard::render
