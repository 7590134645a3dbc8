// Recording what taps show to files that NumPy reads.
#include <cstring>
#include <memory>

#include "formats/shown.h"
#include "metric.h"
#include "spi.h"
#include "summary.h"

namespace postern::listen {
using namespace internal;
using namespace formats;

struct RecordState {
  struct Series {
    std::string asked;  // the leaf's name
    std::string name;   // in the file
    DType dtype;
    Dims dims;
    std::int64_t rows = 0;
    std::vector<std::byte> data = {};  // .npz
  };

  static constexpr std::size_t most_arrays = 0xFFFF;  // of one file

  std::string path;
  std::size_t max_bytes;
  bool one = false;      // .npy
  bool by_step = false;  // a .npz for each firing
  bool closed = false;
  bool has_rows = false;  // in that file; without any, what was there before stays
  bool warned = false;    // that values are left out
  std::unique_ptr<host::NewFile> file;
  Mutex guard;
  std::vector<Series> series;
  std::size_t bytes = 0;
  std::uint64_t recorded = 0, left_out = 0;
  host::MetricSteps steps;
  host::WriteFailures failures;

  RecordState(const std::string& where, const RecordOptions& options)
      : path(where), max_bytes(options.max_bytes), failures(options.on_error) {}
  ~RecordState() {
    try {
      close();
    } catch (const Error& e) {
      log(LogLevel::warning, "{}", e.what());
    }
  }

  Series* find(const std::string& name, const AnyView& leaf) {
    for (Series& s : series)
      if (s.asked == name && s.dtype == leaf.dtype() && std::ranges::equal(s.dims, leaf.dims()))
        return &s;
    if (series.size() == (one ? 1 : most_arrays)) return nullptr;
    // Python's zipfile ends a name at a NUL, and a zip file has 16 bits for its length.
    const std::string readable = one_line(std::string_view(name).substr(0, 4096));
    std::string fresh = readable;
    for (int i = 2; std::ranges::find(series, fresh, &Series::name) != series.end(); ++i)
      fresh = fmt::format("{}_{}", readable, i);
    series.push_back({name, fresh, leaf.dtype(), {leaf.dims().begin(), leaf.dims().end()}});
    return &series.back();
  }

  void see(const std::string& name, const AnyView& leaf) {
    Series* const s = find(name, leaf);
    const std::size_t size =
        static_cast<std::size_t>(leaf.size()) * byte_width(npy_dtype(leaf.dtype()));
    if (!file || !s || bytes + size > max_bytes) return leave_out(name);
    const std::vector<std::byte> row = npy_data(leaf);
    if (one)
      append(*s, row);
    else
      s->data.insert(s->data.end(), row.begin(), row.end());
    ++s->rows;
    ++recorded;
    bytes += size;
  }

  void leave_out(const std::string& name) {
    ++left_out;
    if (!std::exchange(warned, true))
      log(LogLevel::warning, "record '{}': values of '{}' are left out from here on", path, name);
  }

  /// The firing as a file of its own.
  void see_step(const TapInfo& info, std::span<const AnyView> leaves) {
    const std::int64_t step = steps.next(info, leaves).step;
    std::vector<std::vector<std::byte>> data;
    std::vector<ZipFile> arrays;
    std::size_t size = 0;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const Type type = make_type(npy_dtype(leaves[i].dtype()), leaves[i].type().dims);
      size += type.byte_size();
      arrays.push_back(npz_entry(host::metric_name(info, i), npy_header(type)));
    }
    if (closed || bytes + size > max_bytes) return leave_out(std::string(info.name));
    for (const AnyView& leaf : leaves) data.push_back(npy_data(leaf));
    for (std::size_t i = 0; i < leaves.size(); ++i) arrays[i].data = data[i];
    host::NewFile out("record", fmt::format(fmt::runtime(path), fmt::arg("step", step)));
    write_zip(out, arrays);
    out.finish();
    bytes += size;
    recorded += leaves.size();
  }

  /// The row first, then the header that counts it: whoever opens the file meanwhile finds whole
  /// rows, and when either can't be written the next row takes this one's place.
  void append(Series& s, const std::vector<std::byte>& row) {
    const std::string header = npy_header(npy_dtype(s.dtype), s.rows + 1, s.dims);
    const std::size_t at = header.size() + static_cast<std::size_t>(s.rows) * row.size();
    file->write_at(at, {reinterpret_cast<const char*>(row.data()), row.size()});
    file->write_at(0, header);
    file->settle();
    has_rows = true;
  }

  void close() {
    std::scoped_lock lock(guard);
    closed = true;
    if (!file) return;
    const std::unique_ptr<host::NewFile> f = std::move(file);
    if (!one) {
      std::vector<ZipFile> arrays;
      for (const Series& s : series)
        arrays.push_back(npz_entry(s.name, npy_header(npy_dtype(s.dtype), s.rows, s.dims), s.data));
      write_zip(*f, arrays);
    }
    if (!one || has_rows) f->finish();
    series.clear();
  }
};

Record::Record(const std::string& file, const RecordOptions& options, Place place)
    : state_(std::make_shared<RecordState>(file, options)) {
  PlaceScope at(place);
  auto ends = [&](std::string_view with) {
    return file.size() > with.size() && file.ends_with(with);
  };
  check(ends(".npy") || ends(".npz"), "record: the file must be named .npy or .npz, got '{}'",
        file);
  state_->one = ends(".npy");
  state_->by_step = ends(".npz") && file.find("{step") != std::string::npos;
  if (!state_->by_step) {
    state_->failures.run("record",
                         [&] { state_->file = std::make_unique<host::NewFile>("record", file); });
    return;
  }
  host::check_step_format("record", file);
}

void Record::operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
  std::scoped_lock lock(state_->guard);
  const auto see = [&] {
    if (state_->by_step) return state_->see_step(info, leaves);
    for (std::size_t i = 0; i < leaves.size(); ++i)
      state_->see(host::leaf_name(info.name, host::path_of(info, i)), leaves[i]);
  };
  state_->failures.run("record", [&] {
    try {
      see();
    } catch (const std::exception&) {
      ++state_->left_out;
      throw;
    }
  });
}

void Record::close() const { state_->close(); }
std::uint64_t Record::recorded() const {
  std::scoped_lock lock(state_->guard);
  return state_->recorded;
}
std::uint64_t Record::left_out() const {
  std::scoped_lock lock(state_->guard);
  return state_->left_out;
}

}  // namespace postern::listen
