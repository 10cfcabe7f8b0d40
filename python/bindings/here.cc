#include "python/bindings/here.h"

#include <Python.h>
#include <frameobject.h>

#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace outboard::python {
namespace {

constexpr size_t kPlacesMax =
    1 << 16;  // then they are looked up anew: a notebook makes code for each cell

std::string& PackageFolder() {
  static auto* const folder = new std::string;
  return *folder;
}

// Names live for ever, as At asks: there are as many as the program has files and functions.
const char* Interned(PyObject* text) {
  static auto* const names = new std::set<std::string>;
  const char* const utf8 = text != nullptr ? PyUnicode_AsUTF8(text) : nullptr;
  if (utf8 == nullptr) PyErr_Clear();
  return names->insert(utf8 != nullptr ? utf8 : "?").first->c_str();
}

// nullopt: a frame of the package.
std::optional<At> PlaceOf(PyFrameObject* frame, PyCodeObject* code) {
  const char* const file = Interned(code->co_filename);
  if (!PackageFolder().empty() && std::string_view(file).starts_with(PackageFolder()))
    return std::nullopt;
  return At(file, Interned(code->co_name), static_cast<uint32_t>(PyFrame_GetLineNumber(frame)));
}

std::optional<At> CachedPlaceOf(PyFrameObject* frame) {
  PyCodeObject* const code = PyFrame_GetCode(frame);  // a reference of ours
#if PY_VERSION_HEX >= 0x030B0000
  const int instruction = PyFrame_GetLasti(frame);
#else
  const int instruction = PyFrame_GetLineNumber(frame);
#endif
  // Each entry holds its code, so that no other takes its address.
  static auto* const places =
      new absl::flat_hash_map<std::pair<PyCodeObject*, int>, std::optional<At>>;
  if (places->size() >= kPlacesMax) {
    for (const auto& [key, place] : *places) Py_DECREF(key.first);
    places->clear();
  }
  const auto [entry, fresh] = places->try_emplace({code, instruction});
  if (fresh) {
    entry->second = PlaceOf(frame, code);
  } else {
    Py_DECREF(code);
  }
  return entry->second;
}

}  // namespace

void SetPackageFolder(std::string folder) { PackageFolder() = std::move(folder); }

At Here() {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  At at("<python>", "", 0);
  while (frame != nullptr) {
    if (const std::optional<At> place = CachedPlaceOf(frame)) {
      at = *place;
      break;
    }
    PyFrameObject* const back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  return at;
}

}  // namespace outboard::python
