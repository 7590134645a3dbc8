// A shared object that is no library of Postern's.
extern "C" int something_else() { return 1; }
