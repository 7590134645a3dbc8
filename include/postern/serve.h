// The live page: the process shows in a browser what its listeners see while programs run. See
// docs/live.md.
//
//   const pn::Served page = pn::serve();  // http://127.0.0.1:7373/?token=...
//
// The environment variable POSTERN_SERVE=7373 (or address:port) does so when the first program
// runs; what keeps it from serving is then a warning, and the program goes on. POSTERN_ATTACH=1 has
// the process listen for `postern attach` alone. Unasked it opens no socket.
#pragma once
#include <postern/detail/api.h>
#include <postern/place.h>

#include <string>
#include <vector>

namespace postern {

struct ServeOptions {
  int port = 7373;                    // 0: one that is free
  std::string address = "127.0.0.1";  // of this machine, IPv4; "0.0.0.0": reachable from others
  /// Names by which browsers may ask for the page, beside localhost and addresses as numbers.
  std::vector<std::string> hosts = {};
  double per_second = 10;  // updates of a page, from 0.1 to 10
  bool announce = true;    // the URL on stderr
  /// Where listeners that are turned on from outside may make new files and keep checkpoints;
  /// empty: nowhere.
  std::string folder = ".";
};

/// Where the page is.
struct Served {
  std::string url;  // with the token, without which nothing is shown
  int port = 0;
  std::string token;
};

/// Serves the page from a thread of its own until stop_serving() or the end of the process, and
/// listens for `postern attach` meanwhile, unless POSTERN_ATTACH=0. The page shows what living
/// Stats, Histogram and Progress listeners have seen, prints, the log, programs, devices and their
/// queues; `/metrics` has the same numbers as OpenMetrics. While nobody looks it does nothing.
/// Throws TypeError for options out of range; PluginError when the page's library (packages/live)
/// is missing; Error: already_exists when the process serves already, unavailable when the port is
/// in use, permission_denied when it takes rights, failed_precondition in a process that was forked
/// off one that had used Postern.
POSTERN_API Served serve(const ServeOptions& options = {}, Place place = Place::current());

/// Sends what is new to who looks, for at most a quarter of a second, and ends the page. Does
/// nothing when there is none. Throws nothing.
POSTERN_API void stop_serving();

namespace detail {
/// Returns a socket that is connected to a process of this machine and this user, on which its
/// server answers as the page's does. Throws Error: not_found when there is no such process or it
/// does not listen, permission_denied when it is another user's.
POSTERN_API int attach_socket(long process);
}  // namespace detail

}  // namespace postern
