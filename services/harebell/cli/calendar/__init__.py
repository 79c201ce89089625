"""`harebell calendar`: calendars, and the days of a calendar from other sources.

* manage          the commands
* source          the source of the days: a file, public holidays or a market
* ical            the days of an iCalendar file
* holiday_days    public holidays of a country, and the days without trading of a market
"""
