// Recording what taps show to files that NumPy reads.
#include <cstring>
#include <memory>
#include <mutex>

#include "core/check.h"
#include "core/log.h"
#include "listen/npy.h"
#include "listen/summary.h"
#include "print/number.h"

namespace postern::listen {

struct RecordState {
  struct Series {
    std::string asked;  // the leaf's name
    std::string name;   // in the file
    DType dtype;
    Dims dims;
    std::int64_t rows = 0;
    std::size_t header = 0;            // bytes
    std::vector<std::byte> data = {};  // .npz
  };

  static constexpr std::size_t most_arrays = 0xFFFF;  // of a zip file

  std::string path;
  std::size_t max_bytes;
  bool one = false;       // .npy
  bool has_rows = false;  // in that file; without any, what was there before stays
  std::unique_ptr<host::NewFile> file;
  std::mutex guard;
  std::vector<Series> series;
  std::size_t bytes = 0;
  std::uint64_t recorded = 0, left_out = 0;

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
        static_cast<std::size_t>(leaf.size()) * byte_width(host::npy_dtype(leaf.dtype()));
    if (!file || !s || bytes + size > max_bytes) {
      if (left_out++ == 0)
        log(LogLevel::warning, "record '{}': values of '{}' are left out from here on", path, name);
      return;
    }
    const std::vector<std::byte> row = host::npy_data(leaf);
    ++s->rows;
    ++recorded;
    bytes += size;
    if (one)
      append(*s, row);
    else
      s->data.insert(s->data.end(), row.begin(), row.end());
  }

  /// The row first, then the header that counts it: whoever opens the file meanwhile finds whole
  /// rows.
  void append(Series& s, const std::vector<std::byte>& row) {
    const std::string header = host::npy_header(host::npy_dtype(s.dtype), s.rows, s.dims);
    s.header = header.size();
    const std::size_t at = s.header + static_cast<std::size_t>(s.rows - 1) * row.size();
    file->write_at(at, {reinterpret_cast<const char*>(row.data()), row.size()});
    file->write_at(0, header);
    file->settle();
    has_rows = true;
  }

  void close() {
    std::scoped_lock lock(guard);
    if (!file) return;
    const std::unique_ptr<host::NewFile> f = std::move(file);
    if (!one) {
      std::vector<host::NpyArray> arrays;
      for (const Series& s : series)
        arrays.push_back(
            {s.name, host::npy_header(host::npy_dtype(s.dtype), s.rows, s.dims), s.data});
      host::write_npz(*f, arrays);
    }
    if (!one || has_rows) f->finish();
    series.clear();
  }
};

Record::Record(const std::string& file, const RecordOptions& options)
    : state_(std::make_shared<RecordState>()) {
  auto ends = [&](std::string_view with) {
    return file.size() > with.size() && file.ends_with(with);
  };
  check(ends(".npy") || ends(".npz"), "record: the file must be named .npy or .npz, got '{}'",
        file);
  check(ends(".npy") || options.max_bytes < std::size_t{1} << 31,
        "record: a .npz file holds less than 2 GiB, max_bytes is {}", options.max_bytes);
  state_->path = file;
  state_->max_bytes = options.max_bytes;
  state_->one = ends(".npy");
  state_->file = std::make_unique<host::NewFile>("record", file);
}

void Record::operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
  std::scoped_lock lock(state_->guard);
  for (std::size_t i = 0; i < leaves.size(); ++i)
    state_->see(host::leaf_name(info.name, i < info.paths.size() ? std::string_view(info.paths[i])
                                                                 : std::string_view()),
                leaves[i]);
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
