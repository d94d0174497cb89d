"""Telling people: what an incident means, in the forms that chat, paging and other programs take."""
