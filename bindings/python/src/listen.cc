// The library's listeners as classes, and what they have seen as dicts.
#include "listen.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>

#include "errors.h"
#include "interpreter.h"

namespace postern::python {
namespace {

/// One kind of them.
template <class T>
struct Of final : Listener {
  explicit Of(T made) : Listener(Callee(made)), listener(std::move(made)) {}
  T listener;
};

/// What `make` makes; what the library throws arrives as the package's exceptions.
template <class Make>
auto guarded(Make make) {
  try {
    const Released others_run;  // files are opened and written
    return make();
  } catch (const Error& e) {
    raise_error(static_cast<int>(e.code()), e.what());
  }
}

listen::OnError on_error(const std::string& word) {
  if (word == "stop") return listen::OnError::stop;
  if (word == "go_on") return listen::OnError::go_on;
  throw nb::value_error("on_error must be 'stop' or 'go_on'");
}

template <class T>
nb::class_<Of<T>, Listener> bind(nb::module_& m, const char* name, const char* text) {
  return nb::class_<Of<T>, Listener>(m, name, text);
}

template <class T, class... A>
void make(Of<T>* self, A&&... arguments) {
  guarded([&] { return new (self) Of<T>(T(std::forward<A>(arguments)...)); });
}

nb::dict summary_of(const listen::Summary& s) {
  nb::dict out;
  out["count"] = s.count;
  out["nan"] = s.nan;
  out["inf"] = s.inf;
  out["min"] = s.min;
  out["max"] = s.max;
  out["mean"] = s.mean;
  out["rms"] = s.rms;
  return out;
}

nb::list list_of(const std::vector<listen::Series>& series) {
  nb::list out;
  for (const listen::Series& s : series) {
    nb::dict one;
    one["name"] = s.name;
    one["path"] = s.path;
    one["device"] = s.device;
    one["transforms"] = s.transforms;
    one["firings"] = s.firings;
    one["last"] = summary_of(s.last);
    one["all"] = summary_of(s.all);
    nb::list points;
    for (const auto& point : s.points)
      points.append(nb::make_tuple(point.firing, summary_of(point.summary)));
    one["points"] = points;
    out.append(one);
  }
  return out;
}

nb::list list_of(const std::vector<listen::Histogram::Counts>& counts) {
  nb::list out;
  for (const listen::Histogram::Counts& c : counts) {
    nb::dict one;
    one["name"] = c.name;
    one["path"] = c.path;
    one["from"] = c.from;
    one["to"] = c.to;
    one["bins"] = nb::cast(c.bins);
    one["nan"] = c.nan;
    one["inf"] = c.inf;
    out.append(one);
  }
  return out;
}

/// What all processes have seen, which `limit` seconds are given to.
template <class T>
nb::list merged(const Of<T>& of, double limit) {
  const std::chrono::duration<double, std::milli> wait(std::clamp(limit, 0.0, 1e9) * 1e3);
  return list_of(guarded(
      [&] { return of.listener.merged(std::chrono::round<std::chrono::milliseconds>(wait)); }));
}

void bind_watchers(nb::module_& m) {
  bind<listen::Stats>(m, "Stats", "Statistics of everything that it is shown.")
      .def("__init__", [](Of<listen::Stats>* self) { make(self); })
      .def(
          "series", [](const Of<listen::Stats>& s) { return list_of(s.listener.series()); },
          nb::sig("def series(self) -> list[dict[str, Any]]"),
          "A dict for each leaf: name, path, device, transforms, firings, `last` and `all`\n"
          "(count, nan, inf, min, max, mean), and `points`, pairs of a firing and its summary.")
      .def(
          "table", [](const Of<listen::Stats>& s) { return s.listener.table(); },
          "A line for each leaf.")
      .def("merged", &merged<listen::Stats>, nb::arg("limit") = 60.0,
           nb::sig("def merged(self, limit: float = 60.0) -> list[dict[str, Any]]"),
           "As series(), over all processes and devices, on process 0; empty on the others.\n"
           "All processes call it, after barrier(), at the same place among their runs.");
  bind<listen::FirstNonFinite>(m, "FirstNonFinite",
                               "Fails at the first element that is nan or infinite.")
      .def("__init__", [](Of<listen::FirstNonFinite>* self) { make(self); });
  bind<listen::Progress>(m, "Progress",
                         "A progress bar on standard error. A first leaf that is an integer of\n"
                         "rank 0 is the step, else firings are counted; further numbers are\n"
                         "written behind the bar.")
      .def(
          "__init__",
          [](Of<listen::Progress>* self, std::int64_t total, std::string label, int width,
             double per_second, bool of_all_processes) {
            make(self, total,
                 listen::ProgressOptions{.label = std::move(label),
                                         .width = width,
                                         .per_second = per_second,
                                         .of_all_processes = of_all_processes});
          },
          nb::arg("total"), nb::kw_only(), nb::arg("label") = "", nb::arg("width") = 40,
          nb::arg("per_second") = 10.0, nb::arg("of_all_processes") = false);
  bind<listen::Histogram>(m, "Histogram", "Counts of elements by value.")
      .def(
          "__init__",
          [](Of<listen::Histogram>* self, int bins) {
            make(self, listen::HistogramOptions{.bins = bins});
          },
          nb::kw_only(), nb::arg("bins") = 64)
      .def(
          "counts", [](const Of<listen::Histogram>& h) { return list_of(h.listener.counts()); },
          nb::sig("def counts(self) -> list[dict[str, Any]]"),
          "A dict for each leaf: name, path, from, to, bins, nan, inf.")
      .def("merged", &merged<listen::Histogram>, nb::arg("limit") = 60.0,
           nb::sig("def merged(self, limit: float = 60.0) -> list[dict[str, Any]]"),
           "As counts(), over all processes and devices, on process 0; see Stats.merged.");
}

/// What the live page and the report show beside curves, and the report.
void bind_pictures(nb::module_& m) {
  bind<listen::Images>(m, "Images",
                       "Keeps the last image of each leaf, [height, width] or with 1, 3 or 4\n"
                       "channels behind, for the live page and the report.")
      .def("__init__", [](Of<listen::Images>* self) { make(self); });
  m.def("show_text", &listen::show_text, nb::arg("name"), nb::arg("text"),
        "Shows a text under a name on the live page and in the report, in place of\n"
        "the one before; an empty one takes that away.");
  m.def(
      "report",
      [](nb::handle file, std::string title) {
        const std::string path = text_of(file);
        guarded([&] { report(path, {.title = std::move(title)}); });
      },
      nb::arg("file"), nb::kw_only(), nb::arg("title") = ReportOptions().title,
      "Writes a page of HTML with what living listeners have seen, to be opened in a browser.");
  bind<listen::Png>(m, "Png",
                    "Writes images, a file for each: \"x-{step}.png\". Without {step} the newest\n"
                    "firing stays.")
      .def(
          "__init__",
          [](Of<listen::Png>* self, nb::handle file, const std::string& error) {
            make(self, text_of(file), listen::PngOptions{.on_error = on_error(error)});
          },
          nb::arg("file"), nb::kw_only(), nb::arg("on_error") = "stop");
}

void bind_rows(nb::module_& m, const char* name, const char* text, listen::Rows::Format format) {
  m.def(
      name,
      [format](nb::handle file, std::int64_t max_elements, const std::string& error) {
        const std::string path = text_of(file);
        const listen::RowOptions options{.max_elements = max_elements, .on_error = on_error(error)};
        return guarded([&] { return new Of<listen::Rows>(listen::Rows(format, path, options)); });
      },
      nb::rv_policy::take_ownership, nb::arg("file"), nb::kw_only(), nb::arg("max_elements") = 100,
      nb::arg("on_error") = "stop", text);
}

void bind_files(nb::module_& m) {
  bind<listen::Record>(
      m, "Record",
      "Keeps every value that it is shown, for NumPy: \"x.npy\" stacks those of\n"
      "one leaf, \"x.npz\" has an array for each leaf of each tap, \"x-{step}.npz\"\n"
      "is a file for each firing.")
      .def(
          "__init__",
          [](Of<listen::Record>* self, nb::handle file, std::size_t max_bytes,
             const std::string& error) {
            make(self, text_of(file),
                 listen::RecordOptions{.max_bytes = max_bytes, .on_error = on_error(error)});
          },
          nb::arg("file"), nb::kw_only(), nb::arg("max_bytes") = std::size_t{256} << 20,
          nb::arg("on_error") = "stop")
      .def(
          "close", [](const Of<listen::Record>& r) { guarded([&] { r.listener.close(); }); },
          "Writes what is not written yet; later firings are left out.");
  bind<listen::TensorBoard>(
      m, "TensorBoard",
      "Writes event files of TensorBoard into a folder. A first leaf that is\n"
      "an integer of rank 0 is the step.")
      .def(
          "__init__",
          [](Of<listen::TensorBoard>* self, nb::handle folder, bool images, int bins,
             const std::string& error) {
            using Options = listen::TensorBoardOptions;
            make(self, text_of(folder),
                 Options{.arrays = images ? Options::Arrays::images : Options::Arrays::histograms,
                         .bins = bins,
                         .on_error = on_error(error)});
          },
          nb::arg("folder"), nb::kw_only(), nb::arg("images") = false, nb::arg("bins") = 30,
          nb::arg("on_error") = "stop");
  bind<listen::Rows>(m, "Rows", "What csv and jsonl give.");
  bind_rows(m, "csv",
            "A table for one tap: step, time, device, and a column for each leaf of rank 0.",
            listen::Rows::Format::csv);
  bind_rows(m, "jsonl", "An object a line, for any taps.", listen::Rows::Format::jsonl);
}

}  // namespace

void bind_listen(nb::module_& m) {
  nb::class_<Listener>(m, "Listener",
                       "A function of C++ for taps: for postern.jax.tap, and postern.register.");
  bind_watchers(m);
  bind_pictures(m);
  bind_files(m);
}

}  // namespace postern::python
